#include "server/rpc/listener.h"

#include <chrono>
#include <iterator>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "kernels/base/status_macros.h"
#include "server/rpc/call_meter.h"
#include "server/rpc/listening_socket.h"

namespace nightshift {
namespace {

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
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                             static_cast<int>(options.max_metadata_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(options.idle_connection_us / 1000));
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

// gRPC takes over what changes in the files within this time. Whoever puts files there has checked
// them: a bad pair would be served too.
constexpr unsigned int kTlsWatchS = 1;

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsFiles& files,
                                                        bool needs_client_certificate) {
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.client_ca, kTlsWatchS));
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(needs_client_certificate
                                      ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(
    const ListenerOptions& options, const std::vector<grpc::Service*>& services,
    const Clock& clock) {
  std::vector<ListeningSocket> sockets;
  std::vector<std::string> addresses;
  for (const std::string& address : options.addresses) {
    ASSIGN_OR_RETURN(std::vector<ListeningSocket> bound, ListenOn(address));
    addresses.push_back(bound.front().address);
    std::move(bound.begin(), bound.end(), std::back_inserter(sockets));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  if (!options.reflection) {
    builder.SetOption(std::make_unique<NoReflection>());
  }
  SetChannelArguments(options, builder);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> meters;
  meters.push_back(MakeCallMeter(options.metrics, clock));
  builder.experimental().SetInterceptorCreators(std::move(meters));
  constexpr auto kFromDescriptor =
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD;
  Door plain = builder.experimental().AddExternalConnectionAcceptor(
      kFromDescriptor, grpc::InsecureServerCredentials());
  Door tls;
  if (options.tls.has_value()) {
    tls = builder.experimental().AddExternalConnectionAcceptor(
        kFromDescriptor, TlsCredentials(*options.tls, options.needs_client_certificate));
  }
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::FailedPreconditionError(
        "start the gRPC server: its log, with GRPC_VERBOSITY=ERROR, says why");
  }
  std::unique_ptr<Listener> listener(new Listener(std::move(server), std::move(addresses)));
  listener->plain_ = std::move(plain);
  listener->tls_ = std::move(tls);
  listener->SetServing(false);
  listener->SetEngineServing(false);
  listener->acceptor_ = std::make_unique<ConnectionAcceptor>(
      std::move(sockets), options.max_connections,
      [plain_door = listener->plain_.get(), tls_door = listener->tls_.get()](
          const ListeningSocket& socket, int connection) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
        taken.listener_fd = socket.descriptor.get();
        taken.fd = connection;
        auto* door = socket.is_unix || tls_door == nullptr ? plain_door : tls_door;
        door->HandleNewConnection(&taken);
      });
  return listener;
}

Listener::~Listener() {
  Stop(0);
}

void Listener::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
  health.SetServingStatus("", true);
  health.SetServingStatus("liveness", true);
  health.SetServingStatus("nightshift.v1.JobService", serving);
}

void Listener::SetEngineServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus("engine", serving);
}

bool Listener::Stop(int64_t patience_us) {
  acceptor_->Stop();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::microseconds(patience_us);
  server_->Shutdown(deadline);
  const bool patient = std::chrono::system_clock::now() < deadline;
  server_->Wait();
  return patient;
}

}  // namespace nightshift
