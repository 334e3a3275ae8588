#include "server/rpc/listener.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "kernels/base/status_macros.h"
#include "server/security/listen_address.h"

namespace nightshift {
namespace {

// A socket path that somebody answers on is not ours to take; gRPC would unlink it.
bool SomebodyListens(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return false;
  }
  const bool connected =
      ::connect(fd, static_cast<const sockaddr*>(static_cast<const void*>(&address)),
                sizeof(address)) == 0;
  ::close(fd);
  return connected;
}

absl::Status PrepareUnixPath(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::exists(folder, error)) {
    std::filesystem::create_directories(folder, error);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("make folder ", folder.string(), " for the socket: ", error.message()));
  }
  if (SomebodyListens(path)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process listens on ", path, "; stop it or choose another --listen"));
  }
  return absl::OkStatus();
}

void SetChannelArguments(const ListenerOptions& options, grpc::ServerBuilder& builder) {
  constexpr int kKeepaliveMs = 60'000;
  constexpr int kKeepaliveTimeoutMs = 20'000;
  constexpr int kMinPingIntervalMs = 20'000;
  constexpr int kHandshakeMs = 10'000;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options.max_streams_per_connection));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  // A gzip bomb passes the receive limit in this gRPC: nothing is decompressed.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  grpc::ResourceQuota quota("nightshiftd");
  quota.Resize(static_cast<size_t>(options.memory_quota_bytes));
  builder.SetResourceQuota(quota);
}

// gRPC adds reflection to every server of a process that has its library: takes it away from this one.
class NoReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    const std::string name = grpc::reflection::ProtoServerReflectionPlugin().name();
    std::erase_if(*plugins, [&](const auto& plugin) { return plugin->name() == name; });
  }
};

// The address with the port that was bound.
std::string BoundAddress(const std::string& address, int port) {
  if (absl::StartsWith(address, kUnixPrefix)) {
    return address;
  }
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(
    const ListenerOptions& options, const std::vector<grpc::Service*>& services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  if (!options.reflection) {
    builder.SetOption(std::make_unique<NoReflection>());
  }
  SetChannelArguments(options, builder);
  std::vector<int> ports(options.addresses.size(), 0);
  for (size_t i = 0; i < options.addresses.size(); ++i) {
    const std::string& address = options.addresses[i];
    RETURN_IF_ERROR(CheckAddress(address));
    absl::string_view path = address;
    if (absl::ConsumePrefix(&path, kUnixPrefix)) {
      RETURN_IF_ERROR(PrepareUnixPath(std::string(path)));
    }
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &ports[i]);
  }
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::vector<std::string> bound;
  for (size_t i = 0; i < options.addresses.size(); ++i) {
    const std::string& address = options.addresses[i];
    if (server == nullptr || ports[i] == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("listen on ", address,
                       ": the address is in use or not permitted; choose another --listen"));
    }
    bound.push_back(BoundAddress(address, ports[i]));
    absl::string_view path = address;
    if (absl::ConsumePrefix(&path, kUnixPrefix)) {
      // The folder may be open to others, the socket is not.
      ::chmod(std::string(path).c_str(), S_IRUSR | S_IWUSR);
    }
  }
  std::unique_ptr<Listener> listener(new Listener(std::move(server), std::move(bound)));
  listener->SetServing(false);
  listener->SetEngineServing(false);
  return listener;
}

Listener::Listener(std::unique_ptr<grpc::Server> server, std::vector<std::string> addresses)
    : server_(std::move(server)), addresses_(std::move(addresses)) {}

Listener::~Listener() {
  Stop(0);
}

void Listener::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
  health.SetServingStatus("", serving);
  health.SetServingStatus("liveness", true);
  health.SetServingStatus("nightshift.v1.JobService", serving);
}

void Listener::SetEngineServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus("engine", serving);
}

bool Listener::Stop(int64_t patience_us) {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::microseconds(patience_us);
  server_->Shutdown(deadline);
  const bool patient = std::chrono::system_clock::now() < deadline;
  server_->Wait();
  return patient;
}

}  // namespace nightshift
