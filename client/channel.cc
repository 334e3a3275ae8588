#include "client/channel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_interceptor.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/rpc_error.h"

#include "nightshift/v1/server.grpc.pb.h"

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

// Shows the token with every call of a channel.
class TokenInterceptor : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& token) : token_(token) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", absl::StrCat("Bearer ", token_)});
    }
    methods->Proceed();
  }

 private:
  const std::string& token_;
};

class TokenInterceptorFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptorFactory(std::string token) : token_(std::move(token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return std::make_unique<TokenInterceptor>(token_).release();  // gRPC deletes it
  }

 private:
  const std::string token_;
};

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const Credentials& credentials) {
  if (!credentials.uses_tls) {
    return grpc::InsecureChannelCredentials();
  }
  return grpc::SslCredentials({.pem_root_certs = credentials.ca,
                               .pem_private_key = credentials.client_key,
                               .pem_cert_chain = credentials.client_certificate});
}

// gRPC tells why it could not connect with a call only.
std::string WhyNotConnected(grpc::Channel& channel) {
  constexpr absl::Duration kPatience = absl::Seconds(2);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::ServerInfo info;
  const auto stub = v1::ServerService::NewStub(
      std::shared_ptr<grpc::Channel>(std::shared_ptr<grpc::Channel>(), &channel));
  return stub->GetServerInfo(&context, {}, &info).error_message();
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials) {
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
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!credentials.token.empty()) {
    interceptors.push_back(std::make_unique<TokenInterceptorFactory>(credentials.token));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      address, ChannelCredentialsOf(credentials), arguments, std::move(interceptors));
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
      // Words of gRPC's and OpenSSL's, in every version of TLS.
      const std::string why = WhyNotConnected(channel);
      if (absl::StrContains(why, "handshake failed") || absl::StrContains(why, "certificate")) {
        return MakeClientError(
            absl::StatusCode::kUnauthenticated, "TLS_REFUSED",
            absl::StrCat("connect to ", address,
                         ": the daemon's certificate is not one that --ca "
                         "vouches for under this name, or it wants another one of ours "
                         "(--client-cert): ",
                         why));
      }
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
