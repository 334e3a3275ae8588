#include "kernels/base/worker_pool.h"

#include "kernels/base/check.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

constexpr uint64_t kIndexMask = 0xffffffffU;
// About 10 us: a pause takes 10 to 40 ns.
constexpr int kLooks = 400;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// True as soon as `condition` is; false after a while.
template <typename Condition>
bool LookFor(const Condition& condition) {
  for (int look = 0; look < kLooks; ++look) {
    if (condition()) return true;
    Pause();
  }
  return false;
}

}  // namespace

WorkerPool::WorkerPool(int num_threads) {
  CHECK_GE(num_threads, 1);
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this, worker] { Work(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  start_.NotifyAll();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void WorkerPool::ParallelFor(int64_t num_tasks, const std::function<void(int64_t, int)>& task) {
  if (num_tasks <= 0) return;
  if (num_tasks == 1) {
    task(0, 0);
    return;
  }
  TakeTurn();
  RunLoop(num_tasks, task);
  EndTurn();
}

void WorkerPool::TakeTurn() {
  MutexLock lock(turn_mutex_);
  const uint64_t turn = next_turn_++;
  while (present_turn_ != turn) {
    turn_ended_.Wait(turn_mutex_);
  }
}

void WorkerPool::EndTurn() {
  MutexLock lock(turn_mutex_);
  ++present_turn_;
  turn_ended_.NotifyAll();
}

void WorkerPool::RunLoop(int64_t num_tasks, const std::function<void(int64_t, int)>& task) {
  if (threads_.empty()) {
    for (int64_t i = 0; i < num_tasks; ++i) {
      task(i, 0);
    }
    return;
  }
  CHECK_EQ(unfinished_.load(), 0);
  CHECK_LT(static_cast<uint64_t>(num_tasks), kIndexMask);
  const uint64_t loop = (next_.load() & ~kIndexMask) + kIndexMask + 1;
  next_.store(loop | kIndexMask);
  task_.store(&task);
  num_tasks_.store(static_cast<uint64_t>(num_tasks));
  unfinished_.store(num_tasks);
  next_.store(loop);
  if (sleepers_.load() > 0) {
    MutexLock lock(mutex_);
    start_.NotifyAll();
  }
  TakeTasks(0);
  WaitForLast();
}

bool WorkerPool::HasTask() const {
  return (next_.load() & kIndexMask) < num_tasks_.load();
}

void WorkerPool::TakeTasks(int worker) {
  uint64_t next = next_.load();
  while (true) {
    const auto* task = task_.load();
    const uint64_t num_tasks = num_tasks_.load();
    const uint64_t index = next & kIndexMask;
    if (index >= num_tasks) return;
    // Succeeds only while the loop is the one that `task` and `num_tasks` were read for.
    if (!next_.compare_exchange_weak(next, next + 1)) continue;
    (*task)(static_cast<int64_t>(index), worker);
    FinishTask();
    next = next_.load();
  }
}

void WorkerPool::FinishTask() {
  if (unfinished_.fetch_sub(1) > 1 || !caller_sleeps_.load()) return;
  MutexLock lock(mutex_);
  done_.NotifyAll();
}

void WorkerPool::WaitForLast() {
  const auto is_done = [this] { return unfinished_.load() == 0; };
  if (LookFor(is_done)) return;
  MutexLock lock(mutex_);
  caller_sleeps_.store(true);
  while (!is_done()) {
    done_.Wait(mutex_);
  }
  caller_sleeps_.store(false);
}

void WorkerPool::Work(int worker) {
  NameThread("ns-worker");
  while (true) {
    if (!LookFor([this] { return HasTask(); })) {
      MutexLock lock(mutex_);
      sleepers_.fetch_add(1);
      while (!stopping_ && !HasTask()) {
        start_.Wait(mutex_);
      }
      sleepers_.fetch_sub(1);
      if (stopping_) return;
    }
    TakeTasks(worker);
  }
}

}  // namespace nightshift
