// Mutex, MutexLock and CondVar over std, annotated by Abseil's macros for clang's -Wthread-safety.
// Debian's absl::Mutex makes ThreadSanitizer report races that are not there.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>

#include <pthread.h>

#include "absl/base/thread_annotations.h"

namespace nightshift {

// One lock a class; every field it protects is marked ABSL_GUARDED_BY.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits release and retake the mutex that the caller holds. Spurious wakes happen: loop.
class CondVar {
 public:
  CondVar() {
    // std::condition_variable would time by the wall clock, which jumps, or by a call that gcc 12's
    // TSan does not know, pthread_cond_clockwait.
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  ~CondVar() { pthread_cond_destroy(&condition_); }
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    pthread_cond_wait(&condition_, mutex.mutex_.native_handle());
  }
  // Returns false when `timeout` passed without a notification.
  bool WaitFor(Mutex& mutex, std::chrono::microseconds timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    constexpr int64_t kMicros = 1'000'000;
    timespec until = {};
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t micros = until.tv_nsec / 1000 + timeout.count() % kMicros;
    until.tv_sec += timeout.count() / kMicros + micros / kMicros;
    until.tv_nsec = micros % kMicros * 1000;
    return pthread_cond_timedwait(&condition_, mutex.mutex_.native_handle(), &until) != ETIMEDOUT;
  }
  void NotifyOne() { pthread_cond_signal(&condition_); }
  void NotifyAll() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_;
};

}  // namespace nightshift
