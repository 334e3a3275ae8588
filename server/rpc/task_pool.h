// TaskPool: a few threads for accepting jobs: parsing inputs and writing their files, which gRPC's
// threads must not do.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/mutex.h"

namespace nightshift {

// Thread-safe. Tasks start in the order they came.
class TaskPool {
 public:
  TaskPool(int num_threads, int64_t max_queued_tasks);
  // Runs what is queued, then ends the threads.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // RESOURCE_EXHAUSTED (BACKLOG_FULL) when the queue is full: then the task does not run.
  absl::Status Push(std::function<void()> task);

 private:
  void Work();

  const int64_t max_queued_tasks_;
  Mutex mutex_;
  CondVar ready_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nightshift
