#include "server/rpc/health_watch.h"

#include <chrono>
#include <vector>

#include "kernels/base/thread_name.h"
#include "server/rpc/readiness.h"

namespace nightshift {
namespace {

constexpr std::chrono::microseconds kInterval{1'000'000};

}  // namespace

HealthWatch::HealthWatch(const RpcContext& rpc, Listener& listener)
    : rpc_(rpc), listener_(listener) {
  Look();
  thread_ = std::thread([this] { Run(); });
}

HealthWatch::~HealthWatch() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.join();
}

void HealthWatch::Look() {
  // Under the lock, so that what was read first is not told last.
  MutexLock lock(mutex_);
  const std::vector<ReadinessCheck> checks = CheckReadiness(rpc_);
  const bool accepts = AcceptsJobs(checks);
  const bool can_run = CanRun(checks);
  if (accepts_ != accepts) {
    accepts_ = accepts;
    listener_.SetServing(accepts);
  }
  if (can_run_ != can_run) {
    can_run_ = can_run;
    listener_.SetEngineServing(can_run);
  }
}

void HealthWatch::Run() {
  NameThread("ns-health");
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) {
        stop_.WaitFor(mutex_, kInterval);
      }
      if (stopping_) {
        return;
      }
    }
    Look();
  }
}

}  // namespace nightshift
