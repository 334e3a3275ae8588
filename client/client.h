// Client: the C++ library for talking to nightshiftd. Wraps JobService, ServerService and health
// with deadlines, retries, chunked upload and result streams that resume.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/credentials.h"
#include "client/input_file.h"
#include "client/result_stream.h"
#include "client/retries.h"
#include "client/upload.h"

#include "nightshift/v1/jobs.grpc.pb.h"
#include "nightshift/v1/server.grpc.pb.h"

namespace nightshift {

struct ClientOptions {
  // A gRPC target: "unix:/path" or "host:port".
  std::string address;
  CredentialFiles credentials;
  // How long Connect waits for a daemon that does not refuse, but does not answer either.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Deadline of one attempt of a unary call.
  absl::Duration call_timeout = absl::Seconds(30);
  // A result stream without a message (the server sends heartbeats each 15 s) for this long is
  // dead.
  absl::Duration silence_limit = absl::Seconds(60);
  RetryOptions retry;
  // Asked about every 100 ms while the client waits for anything; false ends the call with
  // CANCELLED. Must not call the client.
  std::function<bool()> keep_waiting = [] { return true; };
};

// One call at a time, from one thread.
// Errors, everywhere: the server's code and details (client/rpc_error.h); UNAVAILABLE when
// transient errors did not pass within retry.retry_for; DEADLINE_EXCEEDED; CANCELLED by
// keep_waiting.
class Client {
 public:
  // Returns once the daemon accepts connections. UNAVAILABLE (reason NOT_LISTENING) as soon as the
  // address refuses, so that a wrong address is not waited for; UNAUTHENTICATED (TLS_REFUSED); and
  // as LoadCredentials.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ClientOptions options);

  // Uploads `input` in chunks of 256 KiB with CRC32C and sha256; returns when the job is durable.
  // Repeats the upload after transient errors, from where it broke off if the daemon kept that: the
  // request_id makes that safe.
  // INVALID_ARGUMENT also when the file changed since it was opened.
  absl::StatusOr<v1::Job> Submit(const SubmitOptions& submission, const InputFile& input);

  absl::StatusOr<v1::Job> GetJob(const std::string& name);
  // For displays: one attempt, at most 2 s.
  absl::StatusOr<v1::Job> PeekJob(const std::string& name);
  // The newest jobs first, at most `limit`, of those that `filter` lets through (its page fields
  // are not used).
  absl::StatusOr<std::vector<v1::Job>> ListJobs(v1::ListJobsRequest filter, int64_t limit);
  // One long poll: the job once it has ended, or its latest state after `timeout` (at most 60 s).
  absl::StatusOr<v1::Job> WaitJob(const std::string& name, absl::Duration timeout);
  absl::StatusOr<v1::Job> CancelJob(const std::string& name);
  absl::StatusOr<v1::Job> PauseJob(const std::string& name);
  absl::StatusOr<v1::Job> ResumeJob(const std::string& name);
  // A new job of the requests that failed, expired or were cancelled. Repeated calls with the same
  // request_id (a UUID) give the same job.
  absl::StatusOr<v1::Job> RetryFailed(const std::string& name, const std::string& request_id);
  // `force`: also a job that has not ended. `allow_missing`: OK for one that is not there.
  absl::Status DeleteJob(const std::string& name, bool force, bool allow_missing);

  // Gives the listener each result after after_seq exactly once, in order, however often the
  // connection breaks in between. The listener may use the client.
  // Reopens the stream after transient errors, after the last result that the listener was given.
  absl::StatusOr<ResultStreamEnd> StreamResults(const ResultStreamOptions& options,
                                                const ResultListener& listener);

  // Of a model, of a job's model ("jobs/{id}"), or with both empty of what is loaded.
  absl::StatusOr<v1::Policy> GetPolicy(const std::string& model, const std::string& job);
  absl::StatusOr<v1::ExplainPolicyResponse> ExplainPolicy(const v1::ExplainPolicyRequest& request);
  // Where a document must be cut so that the request around it fits.
  absl::StatusOr<v1::CutDocumentResponse> CutDocument(const v1::CutDocumentRequest& request);

  absl::StatusOr<v1::ServerInfo> GetServerInfo();
  // While draining the daemon accepts and runs nothing.
  absl::StatusOr<v1::ServerInfo> SetDrain(bool drain);
  // Copies the daemon's state to a new folder on its machine (an absolute path). Takes as long as
  // that takes.
  absl::StatusOr<v1::BackupResponse> Backup(const std::string& directory);
  absl::StatusOr<std::vector<v1::Model>> ListModels();
  // The last steps of the engine as a Chrome trace. FAILED_PRECONDITION (NO_SWEEP) before the first
  // sweep.
  absl::StatusOr<std::string> DumpTimeline();
  // True when the health service says SERVING; "" is the whole server. NOT_FOUND: unknown service.
  absl::StatusOr<bool> CheckHealth(const std::string& service);

  const std::string& address() const { return options_.address; }

 private:
  // How much of the upload the daemon has; 0 also when it does not say.
  int64_t KeptBytes(const SubmitOptions& submission, const InputFile& input);
  Client(ClientOptions options, std::shared_ptr<grpc::Channel> channel);

  // `prepare(context, queue)` makes the asynchronous reader of one attempt.
  template <typename Response, typename Prepare>
  absl::StatusOr<Response> CallOnce(absl::string_view attempted, absl::Duration timeout,
                                    const Prepare& prepare);
  // With retries.
  template <typename Response, typename Prepare>
  absl::StatusOr<Response> Call(absl::string_view attempted, absl::Duration timeout,
                                const Prepare& prepare);

  ClientOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ServerService::Stub> server_;
};

}  // namespace nightshift
