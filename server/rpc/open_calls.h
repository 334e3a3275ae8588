// OpenCalls: the calls that wait for something (WaitJob, StreamResults) and must be told when the
// daemon drains; and whether calls may bring jobs.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"

#include "kernels/base/mutex.h"

namespace nightshift {

// Thread-safe.
class OpenCalls {
 public:
  // A call that is woken on drain. Wake may come on any thread and must be short.
  class Waiting {
   public:
    virtual ~Waiting() = default;
    virtual void Wake() = 0;
  };

  // Keeps a weak reference; a call that ended needs no Remove, but should.
  int64_t Add(std::weak_ptr<Waiting> call);
  void Remove(int64_t id);

  // Sets draining() and wakes every open call.
  void Drain();
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  // Refuses new jobs without ending anything (SetDrain).
  void SetDrained(bool drained) { drained_.store(drained, std::memory_order_release); }
  bool drained() const { return drained_.load(std::memory_order_acquire); }
  // UNAVAILABLE when no job is accepted, which says why.
  absl::Status CheckAccepts() const;
  const std::atomic<bool>& draining_flag() const { return draining_; }

 private:
  std::atomic<bool> draining_{false};
  std::atomic<bool> drained_{false};
  Mutex mutex_;
  std::map<int64_t, std::weak_ptr<Waiting>> calls_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace nightshift
