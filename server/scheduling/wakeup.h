// Wakeup: how the runner's thread learns that something happened elsewhere, without polling.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/base/mutex.h"

namespace nightshift {

// Take a ticket, look at the world, and wait past the ticket: whatever happens after the look ends
// the wait at once. Thread-safe.
class Wakeup {
 public:
  int64_t ticket() {
    MutexLock lock(mutex_);
    return count_;
  }
  void Notify() {
    MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  // Returns when Notify was called since `ticket` was taken.
  void WaitPast(int64_t ticket) {
    MutexLock lock(mutex_);
    while (count_ == ticket) {
      changed_.Wait(mutex_);
    }
  }
  // The same, or when about `timeout_us` have passed.
  void WaitPast(int64_t ticket, int64_t timeout_us) {
    MutexLock lock(mutex_);
    while (count_ == ticket && changed_.WaitFor(mutex_, std::chrono::microseconds(timeout_us))) {
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace nightshift
