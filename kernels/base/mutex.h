// Mutex, MutexLock and CondVar over std, annotated for clang's -Wthread-safety.
// Debian's absl::Mutex makes ThreadSanitizer report races that are not there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define NIGHTSHIFT_TS(x) __attribute__((x))
#else
#define NIGHTSHIFT_TS(x)
#endif
#define GUARDED_BY(x) NIGHTSHIFT_TS(guarded_by(x))
#define REQUIRES(...) NIGHTSHIFT_TS(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) NIGHTSHIFT_TS(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS NIGHTSHIFT_TS(no_thread_safety_analysis)

namespace nightshift {

// One lock a class; every field it protects is marked GUARDED_BY.
class NIGHTSHIFT_TS(capability("mutex")) Mutex {
 public:
  void Lock() NIGHTSHIFT_TS(acquire_capability()) { mutex_.lock(); }
  void Unlock() NIGHTSHIFT_TS(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class NIGHTSHIFT_TS(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) NIGHTSHIFT_TS(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() NIGHTSHIFT_TS(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits release and retake the mutex that the caller holds. Spurious wakes happen: loop.
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false when `timeout` passed without a notification.
  bool WaitFor(Mutex& mutex, std::chrono::microseconds timeout) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    // wait_until on the system clock: gcc 12's TSan does not know pthread_cond_clockwait.
    const bool notified =
        condition_.wait_until(lock, std::chrono::system_clock::now() + timeout) ==
        std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace nightshift
