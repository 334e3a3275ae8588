#include "kernels/base/worker_pool.h"

#include "kernels/base/check.h"

namespace nightshift {

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
  if (threads_.empty() || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) {
      task(i, 0);
    }
    return;
  }
  {
    MutexLock lock(mutex_);
    CHECK(task_ == nullptr);
    task_ = &task;
    num_tasks_ = num_tasks;
    next_task_ = 0;
  }
  start_.NotifyAll();
  TakeTasks(0);
  MutexLock lock(mutex_);
  while (running_ > 0) {
    done_.Wait(mutex_);
  }
  task_ = nullptr;
}

void WorkerPool::TakeTasks(int worker) {
  while (true) {
    const std::function<void(int64_t, int)>* task = nullptr;
    int64_t index = 0;
    {
      MutexLock lock(mutex_);
      if (task_ == nullptr || next_task_ >= num_tasks_) return;
      task = task_;
      index = next_task_++;
      ++running_;
    }
    (*task)(index, worker);
    MutexLock lock(mutex_);
    if (--running_ == 0 && next_task_ >= num_tasks_) done_.NotifyAll();
  }
}

void WorkerPool::Work(int worker) {
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!stopping_ && (task_ == nullptr || next_task_ >= num_tasks_)) {
        start_.Wait(mutex_);
      }
      if (stopping_) return;
    }
    TakeTasks(worker);
  }
}

}  // namespace nightshift
