#include "client/channel.h"

#include <algorithm>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/rpc_error.h"

namespace nightshift {
namespace {

// The first matching entry wins: the three long calls have neither gRPC's timeout nor its retries
// (the client itself repeats an upload and reopens a stream), every other call has both.
constexpr char kServiceConfig[] = R"({"methodConfig": [
  {"name": [{"service": "nightshift.v1.JobService", "method": "SubmitJobStream"},
            {"service": "nightshift.v1.JobService", "method": "StreamResults"},
            {"service": "nightshift.v1.JobService", "method": "WaitJob"}],
   "waitForReady": false},
  {"name": [{"service": "nightshift.v1.JobService"}, {"service": "nightshift.v1.ServerService"}],
   "waitForReady": false, "timeout": "30s",
   "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.2s", "maxBackoff": "5s",
                   "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]})";

constexpr int kRetryBufferBytes = 4 << 20;
// One result with long text and many logprobs can pass gRPC's 4 MiB.
constexpr int kMaxReceiveBytes = 256 << 20;

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 1);
  arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, kRetryBufferBytes);
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // A local daemon is back within seconds of a restart; gRPC's own backoff grows to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // The time that one attempt to connect has: a busy daemon may need some.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Two clients of one process must not share the state of a broken connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The daemon is on this machine: no proxy from the environment gets to see the documents.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetServiceConfigJSON(kServiceConfig);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status WaitUntilConnected(grpc::Channel& channel, const std::string& address,
                                absl::Duration timeout, const std::function<bool()>& keep_waiting) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const grpc_connectivity_state state = channel.GetState(true);
    if (state == GRPC_CHANNEL_READY) {
      return absl::OkStatus();
    }
    const absl::Time now = absl::Now();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN ||
        now >= deadline) {
      return MakeClientError(absl::StatusCode::kUnavailable, "NOT_LISTENING",
                             absl::StrCat("connect: no daemon is listening at ", address));
    }
    if (!keep_waiting()) {
      return absl::CancelledError(absl::StrCat("connect to ", address, ": interrupted"));
    }
    channel.WaitForStateChange(
        state, absl::ToChronoTime(std::min(deadline, now + absl::Milliseconds(100))));
  }
}

}  // namespace nightshift
