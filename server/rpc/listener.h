// Listener: the gRPC server: addresses, limits, health, reflection.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

struct ListenerOptions {
  // "unix:PATH" or a loopback HOST:PORT (port 0: any free one).
  std::vector<std::string> addresses;
  // Whether who reaches the daemon may ask which methods it has.
  bool reflection = true;
  int64_t max_message_bytes = 4 << 20;
  int64_t max_streams_per_connection = 128;
  // A last fuse against floods, far above need; gRPC answers RST_STREAM beyond it.
  int64_t memory_quota_bytes = int64_t{1} << 30;
};

// Threads: gRPC 1.51 runs max(2, min(16, cores / 2)) threads for the callback API and offers no
// setting for it (ResourceQuota::SetMaxThreads bounds the synchronous API only). Reactions are
// short, so these threads sleep.
class Listener {
 public:
  // Starts to listen; `services` outlive the listener. Health says NOT_SERVING until SetServing.
  // Errors: INVALID_ARGUMENT (address), FAILED_PRECONDITION (in use, path too long, no permission).
  static absl::StatusOr<std::unique_ptr<Listener>> Start(
      const ListenerOptions& options, const std::vector<grpc::Service*>& services);
  // As Stop with no patience.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The addresses with real ports.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Health of "" and nightshift.v1.JobService ("liveness" is served while the listener lives).
  void SetServing(bool serving);
  // Health of "engine".
  void SetEngineServing(bool serving);
  // Ends: lets calls finish for `patience_us`, then cancels them. True when none had to be
  // cancelled. Idempotent.
  bool Stop(int64_t patience_us);

 private:
  Listener(std::unique_ptr<grpc::Server> server, std::vector<std::string> addresses);

  const std::unique_ptr<grpc::Server> server_;
  const std::vector<std::string> addresses_;
};

}  // namespace nightshift
