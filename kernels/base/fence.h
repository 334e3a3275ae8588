// Fence: a point in time that others wait for, such as the end of a transfer.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace nightshift {

// Completed once by one thread, waited for by others. Thread-safe. Must outlive its completion:
// who gives a fence away waits for it before destroying it.
class Fence {
 public:
  // `status` is what Wait returns from here on. The fence may be gone when this returns.
  void Complete(const absl::Status& status) {
    const MutexLock lock(mutex_);
    status_ = Unshared(status);
    completed_us_ = RealClock().MonotonicMicros();
    complete_ = true;
    completed_.NotifyAll();
  }

  // Blocks until Complete.
  absl::Status Wait() {
    const MutexLock lock(mutex_);
    while (!complete_) {
      completed_.Wait(mutex_);
    }
    return Unshared(status_);
  }

  bool is_complete() const {
    const MutexLock lock(mutex_);
    return complete_;
  }

  // When it was completed, by the real monotonic clock; 0 before.
  int64_t completed_us() const {
    const MutexLock lock(mutex_);
    return completed_us_;
  }

 private:
  // Copies of a status count their references to one text. No text is shared between threads here:
  // ThreadSanitizer does not see the counting in Debian's Abseil and reports races that are not
  // there.
  static absl::Status Unshared(const absl::Status& status) {
    return {status.code(), status.message()};
  }

  mutable Mutex mutex_;
  CondVar completed_;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t completed_us_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
