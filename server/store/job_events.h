// JobEvents: who wants to know when a job changes (WaitJob, followers of StreamResults, the runner).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "kernels/base/mutex.h"

namespace nightshift {

// Thread-safe. Callbacks run on the notifying thread (the store actor), outside the lock; they must
// be short and must not call back into JobEvents' Unsubscribe of another id and wait for it.
class JobEvents {
 public:
  using Callback = std::function<void()>;

  // Calls `callback` after each committed change of the job ("" : of any job) until Unsubscribe.
  int64_t Subscribe(const std::string& job_id, Callback callback);
  // After this returns the callback does not run any more (it waits for a running one, except when
  // called from inside that callback).
  void Unsubscribe(int64_t subscription);
  void Notify(const std::string& job_id);

 private:
  struct Subscriber;
  Mutex mutex_;
  CondVar idle_;
  std::unordered_map<int64_t, std::shared_ptr<Subscriber>> subscribers_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace nightshift
