#include "kernels/base/lane.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/thread_name.h"

namespace nightshift {

Lane::Lane(const Clock& clock) : clock_(clock), thread_([this] { Work(); }) {}

Lane::~Lane() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    issued_.NotifyOne();
  }
  thread_.join();
}

void Lane::Issue(std::vector<Fence*> waits, std::function<absl::Status()> work, Fence* done) {
  CHECK(work != nullptr && done != nullptr);
  const MutexLock lock(mutex_);
  CHECK(!closed_);
  items_.push_back({std::move(waits), std::move(work), done});
  issued_.NotifyOne();
}

LaneCounts Lane::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

void Lane::Work() {
  NameThread("ns-lane");
  while (true) {
    Item item;
    {
      const MutexLock lock(mutex_);
      while (items_.empty() && !closed_) {
        issued_.Wait(mutex_);
      }
      if (items_.empty()) {
        return;
      }
      item = std::move(items_.front());
      items_.pop_front();
    }
    const absl::Status status = Run(item);
    // What the work refers to may be gone with the completion.
    item.work = nullptr;
    item.done->Complete(status);
  }
}

absl::Status Lane::Run(const Item& item) {
  absl::Status status;
  for (size_t i = 0; i < item.waits.size() && status.ok(); ++i) {
    status = item.waits[i]->Wait();
  }
  if (!status.ok()) {
    const MutexLock lock(mutex_);
    ++counts_.skipped;
    return status;
  }
  const int64_t start_us = clock_.MonotonicMicros();
  status = item.work();
  const int64_t busy_us = clock_.MonotonicMicros() - start_us;
  const MutexLock lock(mutex_);
  ++counts_.run;
  counts_.busy_us += busy_us;
  return status;
}

}  // namespace nightshift
