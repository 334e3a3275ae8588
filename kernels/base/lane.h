// Lane: an order of work with a thread of its own, such as the copies in one direction.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/clock.h"
#include "kernels/base/fence.h"
#include "kernels/base/mutex.h"

namespace nightshift {

struct LaneCounts {
  int64_t run = 0;      // works that ended, whatever their status
  int64_t skipped = 0;  // works whose waits ended with an error
  int64_t busy_us = 0;  // from the starts of works to their ends; not waiting for fences
};

// Runs works one after the other, in the order of Issue. Thread-safe. What is issued always ends:
// the destructor returns when it has. Lanes that wait for each other's fences may be destroyed in
// any order, as long as what completes each fence has been issued and no two works wait for each
// other.
class Lane {
 public:
  // The clock must outlive the lane.
  explicit Lane(const Clock& clock);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Never blocks. `work` starts when all earlier works have ended and all of `waits` are complete;
  // then `done` is completed with its status. If a wait ended with an error, the work is skipped
  // and `done` gets the first such error in the order of `waits`, those behind it not being waited
  // for: an error reaches all that depends on it. `waits` must outlive the completion of `done`;
  // `done` and what `work` refers to must too.
  void Issue(std::vector<Fence*> waits, std::function<absl::Status()> work, Fence* done);

  LaneCounts counts() const;

 private:
  struct Item {
    std::vector<Fence*> waits;
    std::function<absl::Status()> work;
    Fence* done = nullptr;
  };

  void Work();
  // Waits and works; returns what `done` is to say.
  absl::Status Run(const Item& item);

  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar issued_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  LaneCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nightshift
