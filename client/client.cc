#include "client/client.h"

#include <algorithm>
#include <utility>

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/await.h"
#include "client/channel.h"
#include "client/rpc_error.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int32_t kJobsPerPage = 200;
constexpr absl::Duration kPeekTimeout = absl::Seconds(2);
constexpr absl::Duration kMaxWait = absl::Seconds(60);
// Of calls for which the daemon copies as much as it has.
constexpr absl::Duration kCopyTimeout = absl::Hours(4);
// An upload below this is sent again sooner than asked about.
constexpr int64_t kLeastResumed = 4 << 20;

void SetDuration(absl::Duration duration, google::protobuf::Duration* target) {
  target->set_seconds(absl::ToInt64Seconds(duration));
  target->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(duration - absl::Seconds(target->seconds()))));
}

}  // namespace

Client::Client(ClientOptions options, std::shared_ptr<grpc::Channel> channel)
    : options_(std::move(options)),
      channel_(std::move(channel)),
      jobs_(v1::JobService::NewStub(channel_)),
      server_(v1::ServerService::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  ASSIGN_OR_RETURN(const Credentials credentials,
                   LoadCredentials(options.credentials, options.address));
  std::shared_ptr<grpc::Channel> channel = MakeChannel(options.address, credentials);
  RETURN_IF_ERROR(WaitUntilConnected(*channel, options.address, credentials.uses_tls,
                                     options.connect_timeout, options.keep_waiting));
  return std::unique_ptr<Client>(new Client(std::move(options), std::move(channel)));
}

template <typename Response, typename Prepare>
absl::StatusOr<Response> Client::CallOnce(absl::string_view attempted, absl::Duration timeout,
                                          const Prepare& prepare) {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  auto reader = prepare(&context, &queue);
  reader->StartCall();
  Response response;
  grpc::Status status;
  reader->Finish(&response, &status, nullptr);
  // gRPC enforces the deadline.
  if (Await(queue, context, absl::InfiniteFuture(), options_.keep_waiting) == Awaited::kStopped) {
    return absl::CancelledError(absl::StrCat(attempted, ": interrupted"));
  }
  if (!status.ok()) {
    return FromRpcStatus(attempted, status);
  }
  return response;
}

template <typename Response, typename Prepare>
absl::StatusOr<Response> Client::Call(absl::string_view attempted, absl::Duration timeout,
                                      const Prepare& prepare) {
  Retries retries(options_.retry, options_.keep_waiting);
  while (true) {
    absl::StatusOr<Response> response = CallOnce<Response>(attempted, timeout, prepare);
    if (response.ok()) {
      return response;
    }
    RETURN_IF_ERROR(retries.Next(response.status()));
  }
}

absl::StatusOr<v1::Job> Client::Submit(const SubmitOptions& submission, const InputFile& input) {
  Retries retries(options_.retry, options_.keep_waiting);
  while (true) {
    absl::StatusOr<v1::Job> job =
        UploadInput(*jobs_, submission, input, KeptBytes(submission, input), options_.keep_waiting);
    if (job.ok()) {
      return job;
    }
    RETURN_IF_ERROR(retries.Next(job.status()));
  }
}

int64_t Client::KeptBytes(const SubmitOptions& submission, const InputFile& input) {
  if (input.size_bytes() < kLeastResumed) {
    return 0;
  }
  v1::GetUploadStatusRequest request;
  request.set_request_id(submission.request_id);
  const auto status = CallOnce<v1::UploadStatus>(
      "ask for the upload", kPeekTimeout, [&](auto* context, auto* queue) {
        return jobs_->PrepareAsyncGetUploadStatus(context, request, queue);
      });
  const bool usable = status.ok() && !status->complete() && status->committed_bytes() > 0 &&
                      status->committed_bytes() <= input.size_bytes();
  return usable ? status->committed_bytes() : 0;
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return Call<v1::Job>(absl::StrCat("read ", name), options_.call_timeout,
                       [&](auto* context, auto* queue) {
                         return jobs_->PrepareAsyncGetJob(context, request, queue);
                       });
}

absl::StatusOr<v1::Job> Client::PeekJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return CallOnce<v1::Job>(absl::StrCat("read ", name), kPeekTimeout,
                           [&](auto* context, auto* queue) {
                             return jobs_->PrepareAsyncGetJob(context, request, queue);
                           });
}

absl::StatusOr<std::vector<v1::Job>> Client::ListJobs(v1::ListJobsRequest filter, int64_t limit) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request = std::move(filter);
  do {
    const int64_t missing = limit - static_cast<int64_t>(jobs.size());
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(missing, kJobsPerPage)));
    ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                     Call<v1::ListJobsResponse>(
                         "list jobs", options_.call_timeout, [&](auto* context, auto* queue) {
                           return jobs_->PrepareAsyncListJobs(context, request, queue);
                         }));
    for (v1::Job& job : *page.mutable_jobs()) {
      jobs.push_back(std::move(job));
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && static_cast<int64_t>(jobs.size()) < limit);
  return jobs;
}

absl::StatusOr<v1::Job> Client::WaitJob(const std::string& name, absl::Duration timeout) {
  v1::WaitJobRequest request;
  request.set_name(name);
  request.set_until(v1::WaitJobRequest::UNTIL_TERMINAL);
  timeout = std::clamp(timeout, absl::Milliseconds(1), kMaxWait);
  SetDuration(timeout, request.mutable_timeout());
  return Call<v1::Job>(absl::StrCat("wait for ", name), timeout + options_.call_timeout,
                       [&](auto* context, auto* queue) {
                         return jobs_->PrepareAsyncWaitJob(context, request, queue);
                       });
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  return Call<v1::Job>(absl::StrCat("cancel ", name), options_.call_timeout,
                       [&](auto* context, auto* queue) {
                         return jobs_->PrepareAsyncCancelJob(context, request, queue);
                       });
}

absl::StatusOr<v1::Job> Client::PauseJob(const std::string& name) {
  v1::PauseJobRequest request;
  request.set_name(name);
  return Call<v1::Job>(absl::StrCat("pause ", name), options_.call_timeout,
                       [&](auto* context, auto* queue) {
                         return jobs_->PrepareAsyncPauseJob(context, request, queue);
                       });
}

absl::StatusOr<v1::Job> Client::ResumeJob(const std::string& name) {
  v1::ResumeJobRequest request;
  request.set_name(name);
  return Call<v1::Job>(absl::StrCat("resume ", name), options_.call_timeout,
                       [&](auto* context, auto* queue) {
                         return jobs_->PrepareAsyncResumeJob(context, request, queue);
                       });
}

absl::StatusOr<v1::Job> Client::RetryFailed(const std::string& name,
                                            const std::string& request_id) {
  v1::RetryFailedRequest request;
  request.set_name(name);
  request.set_request_id(request_id);
  return Call<v1::Job>(absl::StrCat("retry ", name), kCopyTimeout, [&](auto* context, auto* queue) {
    return jobs_->PrepareAsyncRetryFailed(context, request, queue);
  });
}

absl::Status Client::DeleteJob(const std::string& name, bool force, bool allow_missing) {
  v1::DeleteJobRequest request;
  request.set_name(name);
  request.set_force(force);
  request.set_allow_missing(allow_missing);
  return Call<google::protobuf::Empty>(absl::StrCat("delete ", name), options_.call_timeout,
                                       [&](auto* context, auto* queue) {
                                         return jobs_->PrepareAsyncDeleteJob(context, request,
                                                                             queue);
                                       })
      .status();
}

absl::StatusOr<ResultStreamEnd> Client::StreamResults(const ResultStreamOptions& options,
                                                      const ResultListener& listener) {
  Retries retries(options_.retry, options_.keep_waiting);
  ResultStreamEnd end;
  end.last_seq = options.after_seq;
  while (true) {
    const StreamAttempt attempt = StreamResultsOnce(*jobs_, options, options_.silence_limit,
                                                    options_.keep_waiting, listener, end);
    if (attempt.status.ok()) {
      return end;
    }
    if (attempt.is_final) {
      return attempt.status;
    }
    if (attempt.progressed) {
      retries.Progressed();
    }
    RETURN_IF_ERROR(retries.Next(attempt.status));
  }
}

absl::StatusOr<v1::Policy> Client::GetPolicy(const std::string& model, const std::string& job) {
  v1::GetPolicyRequest request;
  request.set_model(model);
  request.set_job(job);
  return Call<v1::Policy>("read policy", options_.call_timeout, [&](auto* context, auto* queue) {
    return jobs_->PrepareAsyncGetPolicy(context, request, queue);
  });
}

absl::StatusOr<v1::ExplainPolicyResponse> Client::ExplainPolicy(
    const v1::ExplainPolicyRequest& request) {
  return Call<v1::ExplainPolicyResponse>(
      "explain policy", options_.call_timeout, [&](auto* context, auto* queue) {
        return jobs_->PrepareAsyncExplainPolicy(context, request, queue);
      });
}

absl::StatusOr<v1::CutDocumentResponse> Client::CutDocument(
    const v1::CutDocumentRequest& request) {
  return Call<v1::CutDocumentResponse>("measure a document", options_.call_timeout,
                                       [&](auto* context, auto* queue) {
                                         return jobs_->PrepareAsyncCutDocument(context, request,
                                                                               queue);
                                       });
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo() {
  const v1::GetServerInfoRequest request;
  return Call<v1::ServerInfo>("read server info", options_.call_timeout,
                              [&](auto* context, auto* queue) {
                                return server_->PrepareAsyncGetServerInfo(context, request, queue);
                              });
}

absl::StatusOr<v1::ServerInfo> Client::SetDrain(bool drain) {
  v1::SetDrainRequest request;
  request.set_drain(drain);
  return Call<v1::ServerInfo>("drain", options_.call_timeout, [&](auto* context, auto* queue) {
    return server_->PrepareAsyncSetDrain(context, request, queue);
  });
}

absl::StatusOr<v1::BackupResponse> Client::Backup(const std::string& directory) {
  v1::BackupRequest request;
  request.set_directory(directory);
  return CallOnce<v1::BackupResponse>("back up", kCopyTimeout, [&](auto* context, auto* queue) {
    return server_->PrepareAsyncBackup(context, request, queue);
  });
}

absl::StatusOr<std::vector<v1::Model>> Client::ListModels() {
  std::vector<v1::Model> models;
  v1::ListModelsRequest request;
  do {
    ASSIGN_OR_RETURN(v1::ListModelsResponse page,
                     Call<v1::ListModelsResponse>(
                         "list models", options_.call_timeout, [&](auto* context, auto* queue) {
                           return server_->PrepareAsyncListModels(context, request, queue);
                         }));
    for (v1::Model& model : *page.mutable_models()) {
      models.push_back(std::move(model));
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return models;
}

absl::StatusOr<std::string> Client::DumpTimeline() {
  const v1::DumpTimelineRequest request;
  ASSIGN_OR_RETURN(
      v1::Timeline timeline,
      Call<v1::Timeline>("read timeline", options_.call_timeout, [&](auto* context, auto* queue) {
        return server_->PrepareAsyncDumpTimeline(context, request, queue);
      }));
  return std::move(*timeline.mutable_chrome_trace_json());
}

absl::StatusOr<bool> Client::CheckHealth(const std::string& service) {
  // grpc.health.v1 without its generated code, which Debian does not ship: HealthCheckRequest is
  // {string service = 1} and HealthCheckResponse {enum status = 1} with SERVING = 1, on the wire
  // the same as these wrappers.
  using HealthStub =
      grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value>;
  constexpr int32_t kServing = 1;
  HealthStub stub(channel_);
  google::protobuf::StringValue request;
  request.set_value(service);
  ASSIGN_OR_RETURN(const auto response,
                   Call<google::protobuf::Int32Value>(
                       absl::StrCat("check health of ", service.empty() ? "the server" : service),
                       options_.call_timeout, [&](auto* context, auto* queue) {
                         return stub.PrepareUnaryCall(context, "/grpc.health.v1.Health/Check",
                                                      request, queue);
                       }));
  return response.value() == kServing;
}

}  // namespace nightshift
