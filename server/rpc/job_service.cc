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
  return StartCall<SubmitCall>(context_, "nightshift.v1.JobService/SubmitJob", context, *request,
                               response, acceptance_);
}

grpc::ServerReadReactor<v1::SubmitJobStreamRequest>* JobServiceRpc::SubmitJobStream(
    grpc::CallbackServerContext* context, v1::Job* response) {
  return StartCall<SubmitStreamCall>(context_, "nightshift.v1.JobService/SubmitJobStream", context,
                                     response, acceptance_);
}

grpc::ServerUnaryReactor* JobServiceRpc::GetJob(grpc::CallbackServerContext* context,
                                                const v1::GetJobRequest* request,
                                                v1::Job* response) {
  return StartCall<GetJobCall>(context_, "nightshift.v1.JobService/GetJob", context, *request,
                               response);
}

grpc::ServerUnaryReactor* JobServiceRpc::ListJobs(grpc::CallbackServerContext* context,
                                                  const v1::ListJobsRequest* request,
                                                  v1::ListJobsResponse* response) {
  return StartCall<ListJobsCall>(context_, "nightshift.v1.JobService/ListJobs", context, *request,
                                 response);
}

grpc::ServerUnaryReactor* JobServiceRpc::WaitJob(grpc::CallbackServerContext* context,
                                                 const v1::WaitJobRequest* request,
                                                 v1::Job* response) {
  return StartCall<WaitCall>(context_, "nightshift.v1.JobService/WaitJob", context, *request,
                             response);
}

grpc::ServerUnaryReactor* JobServiceRpc::CancelJob(grpc::CallbackServerContext* context,
                                                   const v1::CancelJobRequest* request,
                                                   v1::Job* response) {
  return StartCall<ChangeCall>(context_, "nightshift.v1.JobService/CancelJob", context,
                               kCancelChange, request->name(), request->etag(), response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobServiceRpc::StreamResults(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  grpc::ByteBuffer bytes(*request);
  v1::StreamResultsRequest parsed;
  if (!grpc::SerializationTraits<v1::StreamResultsRequest>::Deserialize(&bytes, &parsed).ok()) {
    parsed.Clear();  // is refused for what it lacks
  }
  return StartCall<ResultsCall>(context_, "nightshift.v1.JobService/StreamResults", context,
                                std::move(parsed));
}

grpc::ServerUnaryReactor* JobServiceRpc::GetUploadStatus(grpc::CallbackServerContext* context,
                                                         const v1::GetUploadStatusRequest* request,
                                                         v1::UploadStatus* response) {
  return StartCall<UploadStatusCall>(context_, "nightshift.v1.JobService/GetUploadStatus", context,
                                     request->request_id(), response);
}

grpc::ServerUnaryReactor* JobServiceRpc::PauseJob(grpc::CallbackServerContext* context,
                                                  const v1::PauseJobRequest* request,
                                                  v1::Job* response) {
  return StartCall<ChangeCall>(context_, "nightshift.v1.JobService/PauseJob", context, kPauseChange,
                               request->name(), request->etag(), response);
}

grpc::ServerUnaryReactor* JobServiceRpc::ResumeJob(grpc::CallbackServerContext* context,
                                                   const v1::ResumeJobRequest* request,
                                                   v1::Job* response) {
  return StartCall<ChangeCall>(context_, "nightshift.v1.JobService/ResumeJob", context,
                               kResumeChange, request->name(), request->etag(), response);
}

grpc::ServerUnaryReactor* JobServiceRpc::RetryFailed(grpc::CallbackServerContext* context,
                                                     const v1::RetryFailedRequest* request,
                                                     v1::Job* response) {
  return StartCall<RetryCall>(context_, "nightshift.v1.JobService/RetryFailed", context, *request,
                              response, acceptance_);
}

grpc::ServerUnaryReactor* JobServiceRpc::DeleteJob(grpc::CallbackServerContext* context,
                                                   const v1::DeleteJobRequest* request,
                                                   google::protobuf::Empty* response) {
  return StartCall<DeleteCall>(context_, "nightshift.v1.JobService/DeleteJob", context, *request,
                               response);
}

grpc::ServerUnaryReactor* JobServiceRpc::GetPolicy(grpc::CallbackServerContext* context,
                                                   const v1::GetPolicyRequest* request,
                                                   v1::Policy* response) {
  return StartCall<GetPolicyCall>(context_, "nightshift.v1.JobService/GetPolicy", context, *request,
                                  response);
}

grpc::ServerUnaryReactor* JobServiceRpc::ExplainPolicy(grpc::CallbackServerContext* context,
                                                       const v1::ExplainPolicyRequest* request,
                                                       v1::ExplainPolicyResponse* response) {
  return StartCall<ExplainPolicyCall>(context_, "nightshift.v1.JobService/ExplainPolicy", context,
                                      *request, response);
}

grpc::ServerUnaryReactor* JobServiceRpc::CutDocument(grpc::CallbackServerContext* context,
                                                     const v1::CutDocumentRequest* request,
                                                     v1::CutDocumentResponse* response) {
  return StartCall<CutDocumentCall>(context_, "nightshift.v1.JobService/CutDocument", context,
                                    *request, response, cut_text_);
}

}  // namespace nightshift
