#include "server/rpc/open_calls.h"

#include <utility>
#include <vector>

#include "server/rpc/status_bridge.h"

namespace nightshift {

int64_t OpenCalls::Add(std::weak_ptr<Waiting> call) {
  MutexLock lock(mutex_);
  const int64_t id = next_id_++;
  calls_[id] = std::move(call);
  return id;
}

void OpenCalls::Remove(int64_t id) {
  MutexLock lock(mutex_);
  calls_.erase(id);
}

absl::Status OpenCalls::CheckAccepts() const {
  if (draining()) {
    return Draining();
  }
  return drained() ? Drained() : absl::OkStatus();
}

void OpenCalls::Drain() {
  draining_.store(true, std::memory_order_release);
  std::vector<std::shared_ptr<Waiting>> waiting;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, call] : calls_) {
      if (auto open = call.lock()) {
        waiting.push_back(std::move(open));
      }
    }
  }
  for (const auto& call : waiting) {
    call->Wake();
  }
}

}  // namespace nightshift
