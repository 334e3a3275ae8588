#include "server/rpc/task_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/thread_name.h"
#include "server/input/rpc_error.h"

namespace nightshift {

TaskPool::TaskPool(int num_threads, int64_t max_queued_tasks)
    : max_queued_tasks_(max_queued_tasks) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

TaskPool::~TaskPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    ready_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

absl::Status TaskPool::Push(std::function<void()> task) {
  constexpr int64_t kRetryDelayMs = 1000;
  MutexLock lock(mutex_);
  if (static_cast<int64_t>(tasks_.size()) >= max_queued_tasks_) {
    return WithRetryDelay(MakeError(absl::StatusCode::kResourceExhausted, reason::kBacklogFull,
                                    absl::StrCat("the daemon is accepting ", max_queued_tasks_,
                                                 " other submissions, its limit; come again"),
                                    {{"limit", absl::StrCat(max_queued_tasks_)}}),
                          kRetryDelayMs);
  }
  tasks_.push_back(std::move(task));
  ready_.NotifyOne();
  return absl::OkStatus();
}

void TaskPool::Work() {
  NameThread("ns-task");
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_) {
        ready_.Wait(mutex_);
      }
      if (tasks_.empty()) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace nightshift
