// HealthWatch: keeps what the gRPC health service says true.
#pragma once

#include <optional>
#include <thread>

#include "kernels/base/mutex.h"
#include "server/rpc/listener.h"
#include "server/rpc/rpc_context.h"

namespace nightshift {

// Looks at the readiness (readiness.h) once a second and tells the listener what has changed.
class HealthWatch {
 public:
  // Looks once, then on its own thread. Both must outlive it.
  HealthWatch(const RpcContext& rpc, Listener& listener);
  ~HealthWatch();
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  // Looks now: for who has changed something.
  void Look();

 private:
  void Run();

  const RpcContext& rpc_;
  Listener& listener_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<bool> accepts_ ABSL_GUARDED_BY(mutex_);
  std::optional<bool> can_run_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nightshift
