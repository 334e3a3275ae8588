// JobService: the methods of nightshift.v1.JobService, each a call object of its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/rpc/acceptance.h"
#include "server/rpc/cut_document_call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.grpc.pb.h"

namespace nightshift {

// Reactions run on gRPC's threads and never block: reading goes to the store's readers, writing to
// the store actor, accepting to the task pools.
class JobServiceRpc
    : public v1::JobService::WithRawCallbackMethod_StreamResults<v1::JobService::CallbackService> {
 public:
  explicit JobServiceRpc(RpcContext& context) : context_(context), acceptance_(context) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerReadReactor<v1::SubmitJobStreamRequest>* SubmitJobStream(
      grpc::CallbackServerContext* context, v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* WaitJob(grpc::CallbackServerContext* context,
                                    const v1::WaitJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  // Raw: ResultBatch as bytes.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamResults(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* GetUploadStatus(grpc::CallbackServerContext* context,
                                            const v1::GetUploadStatusRequest* request,
                                            v1::UploadStatus* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* RetryFailed(grpc::CallbackServerContext* context,
                                        const v1::RetryFailedRequest* request,
                                        v1::Job* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* GetPolicy(grpc::CallbackServerContext* context,
                                      const v1::GetPolicyRequest* request,
                                      v1::Policy* response) override;
  grpc::ServerUnaryReactor* ExplainPolicy(grpc::CallbackServerContext* context,
                                          const v1::ExplainPolicyRequest* request,
                                          v1::ExplainPolicyResponse* response) override;
  grpc::ServerUnaryReactor* CutDocument(grpc::CallbackServerContext* context,
                                        const v1::CutDocumentRequest* request,
                                        v1::CutDocumentResponse* response) override;

 private:
  RpcContext& context_;
  Acceptance acceptance_;
  LastModelText cut_text_;
};

}  // namespace nightshift
