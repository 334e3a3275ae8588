// Server: the daemon's parts, made, drained and stopped in one place.
//
// Start: lock the state directory, open the store, give rows of a crash back, sweep stray files,
// look for models, listen, run. Drain is the reverse: no new work, waiters told, the engine's sweep
// ended and published, calls ended, the store closed by the destructor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/options.h"
#include "server/http/http_server.h"
#include "server/metrics/metrics.h"
#include "server/rpc/health_watch.h"
#include "server/rpc/job_service.h"
#include "server/rpc/kept_uploads.h"
#include "server/rpc/listener.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/server_service.h"
#include "server/rpc/task_pool.h"
#include "server/rpc/tenant_limits.h"
#include "server/scheduling/model_catalog.h"
#include "server/scheduling/runner.h"
#include "server/security/access_control.h"
#include "server/security/tls_rotation.h"
#include "server/store/disk_guard.h"
#include "server/store/janitor.h"
#include "server/store/sqlite_job_store.h"
#include "server/store/state_directory.h"
#include "server/store/store_actor.h"

namespace nightshift {

struct ServerParts {
  EngineFactory engine_factory;
  // Called once, on a thread of the server, when the store can no longer be trusted to keep what it
  // is given: drain and exit with an error.
  std::function<void(const absl::Status&)> on_fatal;
  // Told whether the daemon is drained (SetDrain), at its start and whenever that changes; on a
  // thread of the server.
  std::function<void(bool drained)> on_drain_set = [](bool) {};
  // Between signs of life on a stream of results that has nothing to send.
  int64_t heartbeat_interval_us = 15'000'000;
  // A reader of results that takes nothing for so long is cut off; looked at with each heartbeat.
  int64_t stalled_reader_us = 300'000'000;
};

// Methods are for one thread, but Drain may run on another while Hurry and CheckAlive come.
class Server {
 public:
  // Returns when the daemon accepts calls. Errors: FAILED_PRECONDITION (another daemon has the
  // state directory or the address, newer store), INVALID_ARGUMENT, DATA_LOSS (store), with what to
  // do.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options, ServerParts parts);
  // What of the options only the machine can tell: whether every pack that they name can be served,
  // the hardware profile read, the state directory used; whether the folder of spilled data is there. Makes nothing, and may
  // be asked beside a daemon that runs. Errors: the first one, naming its option.
  static absl::Status Check(const Options& options);
  // Drains, if that was not done.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Ends the daemon's work so that nothing is lost; returns when no call is open. True when every
  // call ended by itself. Idempotent.
  bool Drain();
  // A second wish to end: calls that are open are cancelled instead of waited for.
  void Hurry() { patience_us_.store(0); }

  // Takes over what has changed in the access file and in the files of TLS; what is wrong there
  // changes nothing and is logged. Any thread.
  void Reload();

  const std::vector<std::string>& addresses() const { return listener_->addresses(); }
  // Whether the store's thread takes writes and, until the drain, the listeners take connections:
  // UNAVAILABLE names which does not. Waits for each of them that long at most. Beside Drain, too.
  absl::Status CheckAlive(int64_t timeout_us);
  // Of the HTTP server; empty where there is none.
  std::string http_url() const { return http_ == nullptr ? "" : http_->url(); }

 private:
  Server() = default;
  absl::Status OpenStore(const Options& options, const ServerParts& parts);
  absl::Status Listen(const Options& options, const ServerParts& parts);
  absl::Status ServeHttp(const std::string& address, const v1::ServerInfo& info);
  // Refuses new jobs and lets nothing run, also after a restart, or undoes that. Blocks. Errors:
  // StateDirectory::KeepDrained's; nothing has changed.
  absl::Status SetDrain(bool drain);
  // Does what the state directory says of it.
  void ApplyDrain();
  absl::StatusOr<v1::BackupResponse> Backup(const std::string& directory);

  // Most patience for open calls after everything else has ended.
  std::atomic<int64_t> patience_us_{10'000'000};
  std::atomic<bool> drained_{false};
  bool calls_ended_ = false;
  std::function<void(bool drained)> on_drain_set_;
  Mutex drain_mutex_;  // one SetDrain at a time
  RealClock clock_;
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<TlsRotation> tls_;  // null: no TLS
  std::unique_ptr<TenantLimits> tenants_;
  // Shared with the parts, some of which tests make without a Server.
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::unique_ptr<StateDirectory> state_;
  std::unique_ptr<DiskGuard> disk_;
  SqliteJobStore* database_ = nullptr;  // store_'s
  std::unique_ptr<StoreActor> store_;
  std::unique_ptr<ModelCatalog> catalog_;
  std::unique_ptr<KeptUploads> uploads_;
  std::unique_ptr<Janitor> janitor_;
  std::unique_ptr<Runner> runner_;
  OpenCalls calls_;
  std::unique_ptr<RpcContext> context_;
  std::unique_ptr<JobServiceRpc> jobs_;
  std::unique_ptr<ServerServiceRpc> info_;
  // Tasks hold calls, calls use what stands above: the pools end before it, the listener first.
  std::unique_ptr<TaskPool> tasks_;
  std::unique_ptr<TaskPool> scans_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<HealthWatch> health_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace nightshift
