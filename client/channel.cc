#include "client/channel.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_interceptor.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/rpc_error.h"
#include "kernels/base/file_descriptor.h"

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

// Whether HOST:PORT takes connections, whatever is spoken there: gRPC does not tell a refused
// connection from a refused handshake.
bool TakesConnections(const std::string& address) {
  constexpr int kPatienceMs = 2000;
  std::string host = address.substr(0, address.rfind(':'));
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.substr(address.rfind(':') + 1).c_str(), &hints, &found) !=
      0) {
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> places(found, &freeaddrinfo);
  for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
    const FileDescriptor probe(
        socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    pollfd waited = {.fd = probe.get(), .events = POLLOUT, .revents = 0};
    if (connect(probe.get(), place->ai_addr, place->ai_addrlen) == 0 ||
        (errno == EINPROGRESS && poll(&waited, 1, kPatienceMs) == 1 &&
         (waited.revents & (POLLERR | POLLHUP)) == 0)) {
      return true;
    }
  }
  return false;
}

absl::Status NotConnected(const std::string& address, bool uses_tls) {
  if (uses_tls && TakesConnections(address)) {
    return MakeClientError(
        absl::StatusCode::kUnauthenticated, "TLS_REFUSED",
        absl::StrCat(
            "connect to ", address,
            ": somebody listens, but the TLS handshake fails: --ca does not vouch for its "
            "certificate under this name, or it wants a certificate of ours (--client-cert)"));
  }
  const bool may_want_tls = !uses_tls && !absl::StartsWith(address, "unix:");
  return MakeClientError(absl::StatusCode::kUnavailable, "NOT_LISTENING",
                         absl::StrCat("connect: no daemon is listening at ", address,
                                      may_want_tls ? ", or one that wants TLS (--ca)" : ""));
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

absl::Status WaitUntilConnected(grpc::Channel& channel, const std::string& address, bool uses_tls,
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
      return NotConnected(address, uses_tls);
    }
    if (!keep_waiting()) {
      return absl::CancelledError(absl::StrCat("connect to ", address, ": interrupted"));
    }
    channel.WaitForStateChange(
        state, absl::ToChronoTime(std::min(deadline, now + absl::Milliseconds(100))));
  }
}

}  // namespace nightshift
