// The pool of compute threads: as many as cores, no spinning while idle.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace nightshift {

// Runs parallel loops over tasks. The caller works too, so `num_threads` = 1 starts no thread.
// One loop at a time: ParallelFor is called from one thread and does not nest.
class WorkerPool {
 public:
  // num_threads >= 1, the caller included.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls task(i, worker) once for each i in [0, num_tasks), worker in [0, num_threads());
  // returns when all have ended. Tasks are taken one by one, so ragged work balances.
  void ParallelFor(int64_t num_tasks, const std::function<void(int64_t, int)>& task);

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

 private:
  void Work(int worker);
  void TakeTasks(int worker);

  Mutex mutex_;
  CondVar start_;
  CondVar done_;
  const std::function<void(int64_t, int)>* task_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t num_tasks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_task_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nightshift
