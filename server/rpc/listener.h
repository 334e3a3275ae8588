// Listener: the gRPC server: addresses, limits, health, reflection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "server/metrics/metrics.h"
#include "server/rpc/connection_acceptor.h"
#include "server/security/tls_pair.h"

namespace nightshift {

struct ListenerOptions {
  // "unix:PATH" or HOST:PORT (port 0: any free one).
  std::vector<std::string> addresses;
  // What HOST:PORT is served with, watched for changes; nothing: in plain text. Unix sockets always
  // are.
  std::optional<TlsFiles> tls;
  // With tls.client_ca: whether clients must show a certificate, or may.
  bool needs_client_certificate = true;
  // Whether who reaches the daemon may ask which methods it has.
  bool reflection = true;
  int64_t max_message_bytes = 4 << 20;
  int64_t max_metadata_bytes = 8 << 10;  // of one call
  int64_t max_connections = 10'000;
  int64_t max_streams_per_connection = 128;
  int64_t idle_connection_us = 900'000'000;  // a connection without a call ends after that
  // A last fuse against floods, far above need; gRPC answers RST_STREAM beyond it.
  int64_t memory_quota_bytes = int64_t{1} << 30;
  // Gets what calls took; shared with all parts of the daemon.
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
};

// Threads: gRPC 1.51 runs max(2, min(16, cores / 2)) threads for the callback API and offers no
// setting for it (ResourceQuota::SetMaxThreads bounds the synchronous API only). Reactions are
// short, so these threads sleep.
class Listener {
 public:
  // Starts to listen; `services` and `clock` outlive the listener. Health says NOT_SERVING until SetServing.
  // Errors: FAILED_PRECONDITION (in use, no permission).
  static absl::StatusOr<std::unique_ptr<Listener>> Start(
      const ListenerOptions& options, const std::vector<grpc::Service*>& services,
      const Clock& clock);
  // As Stop with no patience.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The addresses with real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Health of nightshift.v1.JobService: whether jobs are accepted. "" and "liveness" are served while
  // the listener lives.
  void SetServing(bool serving);
  // Health of "engine": whether jobs that were accepted can run.
  void SetEngineServing(bool serving);
  // Ends: lets calls finish for `patience_us`, then cancels them. True when none had to be
  // cancelled. Idempotent.
  bool Stop(int64_t patience_us);

 private:
  using Door = std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>;
  Listener(std::unique_ptr<grpc::Server> server, std::vector<std::string> addresses)
      : server_(std::move(server)), addresses_(std::move(addresses)) {}

  const std::unique_ptr<grpc::Server> server_;
  const std::vector<std::string> addresses_;
  Door plain_;
  Door tls_;                                      // null: none
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // goes first: it hands on to the others
};

}  // namespace nightshift
