// DiskGuard: what happens when the disk of the state directory is full. Keeps a ballast, a file whose
// space is given up then, so that what has happened can still be written down.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"

#include "kernels/base/mutex.h"

namespace nightshift {

struct DiskGuardOptions {
  std::string path;  // of the ballast's file
  // Of the ballast; 0: none, and full() is never true.
  int64_t ballast_bytes = 64 << 20;
  int64_t retry_interval_us = 500'000;  // between looks whether there is room again
};

// full() from when a write found no room until the ballast is whole again, for which as much again
// has to be free: meanwhile nothing should run or be accepted. Thread-safe.
class DiskGuard {
 public:
  // Makes the ballast, if there is room for it; else the disk counts as full. A ballast of another
  // size is made anew.
  explicit DiskGuard(DiskGuardOptions options);
  // As StopWatching.
  ~DiskGuard();
  DiskGuard(const DiskGuard&) = delete;
  DiskGuard& operator=(const DiskGuard&) = delete;

  // A write found no room: gives the ballast up. True when that has made room, so that it is worth
  // another try.
  bool MakeRoom();
  bool full() const { return full_.load(); }
  // RESOURCE_EXHAUSTED while full(), with what to do.
  absl::Status CheckRoom() const;

  // From here on `on_change` is called after each change of full(), on the thread that changed it.
  void Watch(std::function<void()> on_change);
  // After this it is called no more.
  void StopWatching();

 private:
  void Work();
  // Whether the ballast is whole.
  bool Refill();
  void GiveUp();
  void Tell();

  const DiskGuardOptions options_;
  std::atomic<bool> full_{false};
  Mutex mutex_;
  CondVar changed_;
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  int telling_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of on_change_ on their way
  std::function<void()> on_change_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nightshift
