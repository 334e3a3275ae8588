#include "server/rpc/job_service.h"

#include <utility>

#include "server/rpc/change_call.h"
#include "server/rpc/delete_call.h"
#include "server/rpc/policy_call.h"
#include "server/rpc/read_calls.h"
#include "server/rpc/results_call.h"
#include "server/rpc/retry_call.h"
#include "server/rpc/status_bridge.h"
#include "server/rpc/submit_call.h"
#include "server/rpc/submit_stream_call.h"
#include "server/rpc/upload_status_call.h"
#include "server/rpc/wait_call.h"

namespace nightshift {

grpc::ServerUnaryReactor* JobServiceRpc::SubmitJob(grpc::CallbackServerContext* context,
                                                   const v1::SubmitJobRequest* request,
                                                   v1::Job* response) {
  return StartCall<SubmitCall>(context, *request, response, context_, acceptance_);
}

grpc::ServerReadReactor<v1::SubmitJobStreamRequest>* JobServiceRpc::SubmitJobStream(
    grpc::CallbackServerContext* context, v1::Job* response) {
  return StartCall<SubmitStreamCall>(context, response, context_, acceptance_, num_uploads_);
}

grpc::ServerUnaryReactor* JobServiceRpc::GetJob(grpc::CallbackServerContext* context,
                                                const v1::GetJobRequest* request,
                                                v1::Job* response) {
  return StartCall<GetJobCall>(context, *request, response, context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::ListJobs(grpc::CallbackServerContext* context,
                                                  const v1::ListJobsRequest* request,
                                                  v1::ListJobsResponse* response) {
  return StartCall<ListJobsCall>(context, *request, response, context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::WaitJob(grpc::CallbackServerContext* context,
                                                 const v1::WaitJobRequest* request,
                                                 v1::Job* response) {
  return StartCall<WaitCall>(context, *request, response, context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::CancelJob(grpc::CallbackServerContext* context,
                                                   const v1::CancelJobRequest* request,
                                                   v1::Job* response) {
  return StartCall<ChangeCall>(context, kCancelChange, request->name(), request->etag(), response,
                               context_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobServiceRpc::StreamResults(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  grpc::ByteBuffer bytes(*request);
  v1::StreamResultsRequest parsed;
  if (!grpc::SerializationTraits<v1::StreamResultsRequest>::Deserialize(&bytes, &parsed).ok()) {
    parsed.Clear();  // is refused for what it lacks
  }
  return StartCall<ResultsCall>(context, std::move(parsed), context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::GetUploadStatus(grpc::CallbackServerContext* context,
                                                         const v1::GetUploadStatusRequest* request,
                                                         v1::UploadStatus* response) {
  return StartCall<UploadStatusCall>(context, request->request_id(), response, context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::PauseJob(grpc::CallbackServerContext* context,
                                                  const v1::PauseJobRequest* request,
                                                  v1::Job* response) {
  return StartCall<ChangeCall>(context, kPauseChange, request->name(), request->etag(), response,
                               context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::ResumeJob(grpc::CallbackServerContext* context,
                                                   const v1::ResumeJobRequest* request,
                                                   v1::Job* response) {
  return StartCall<ChangeCall>(context, kResumeChange, request->name(), request->etag(), response,
                               context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::RetryFailed(grpc::CallbackServerContext* context,
                                                     const v1::RetryFailedRequest* request,
                                                     v1::Job* response) {
  return StartCall<RetryCall>(context, *request, response, context_, acceptance_);
}

grpc::ServerUnaryReactor* JobServiceRpc::DeleteJob(grpc::CallbackServerContext* context,
                                                   const v1::DeleteJobRequest* request,
                                                   google::protobuf::Empty* response) {
  return StartCall<DeleteCall>(context, *request, response, context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::GetPolicy(grpc::CallbackServerContext* context,
                                                   const v1::GetPolicyRequest* request,
                                                   v1::Policy* response) {
  return StartCall<GetPolicyCall>(context, *request, response, context_);
}

grpc::ServerUnaryReactor* JobServiceRpc::ExplainPolicy(grpc::CallbackServerContext* context,
                                                       const v1::ExplainPolicyRequest* request,
                                                       v1::ExplainPolicyResponse* response) {
  return StartCall<ExplainPolicyCall>(context, *request, response, context_);
}

}  // namespace nightshift
