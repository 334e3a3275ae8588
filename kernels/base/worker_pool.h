// The pool of compute threads: as many as cores, no spinning while idle.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace nightshift {

// Runs parallel loops over tasks. The caller works too, so `num_threads` = 1 starts no thread.
// One loop at a time, so that loops never take more than `num_threads` cores: threads that call
// ParallelFor take turns in the order in which they came, asleep until it is theirs. Between two
// loops of one caller each other that waits has one. It does not nest.
//
// A thread that runs out of work looks for more for about 10 us, which bridges the gap between two
// ops of a sweep, and then sleeps: waking costs as much as a small op.
class WorkerPool {
 public:
  // num_threads >= 1, the caller included.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls task(i, worker) once for each i in [0, num_tasks), worker in [0, num_threads());
  // returns when all have ended. Tasks are taken one by one, so ragged work balances. A single task
  // runs on the caller's thread at once, without a turn.
  // num_tasks < 2^32 - 1.
  void ParallelFor(int64_t num_tasks, const std::function<void(int64_t, int)>& task);

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

 private:
  void TakeTurn();
  void EndTurn();
  void RunLoop(int64_t num_tasks, const std::function<void(int64_t, int)>& task);
  void Work(int worker);
  // Runs tasks of the present loop until none is left to take.
  void TakeTasks(int worker);
  bool HasTask() const;
  void FinishTask();
  void WaitForLast();

  // The loop's number in the upper half, the next task in the lower: a task is taken by raising the
  // whole, which fails once the loop is another. While `task_` and `num_tasks_` change, the lower
  // half is above any count.
  std::atomic<uint64_t> next_{0};
  std::atomic<const std::function<void(int64_t, int)>*> task_{nullptr};
  std::atomic<uint64_t> num_tasks_{0};
  std::atomic<int64_t> unfinished_{0};  // tasks of the loop
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};

  // Of callers, apart from mutex_, which callers and workers share.
  Mutex turn_mutex_;
  CondVar turn_ended_;
  uint64_t next_turn_ ABSL_GUARDED_BY(turn_mutex_) = 0;  // of the caller that comes next
  uint64_t present_turn_ ABSL_GUARDED_BY(turn_mutex_) = 0;

  Mutex mutex_;
  CondVar start_;
  CondVar done_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nightshift
