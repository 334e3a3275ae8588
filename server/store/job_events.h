// JobEvents: who wants to know when a job changes (WaitJob, followers of StreamResults, the
// runner).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kernels/base/mutex.h"

namespace nightshift {

// Thread-safe. Callbacks run on the notifying thread (the store actor), outside the lock; they must
// be short and must not call Unsubscribe of another id, which would wait for that one's callback.
class JobEvents {
 public:
  using Callback = std::function<void()>;

  // Calls `callback` after each committed change of the job ("" : of any job) until Unsubscribe.
  int64_t Subscribe(const std::string& job_id, Callback callback);
  // After this returns the callback does not run any more (it waits for a running one, except when
  // called from inside that callback). Unknown ids are skipped.
  void Unsubscribe(int64_t subscription);
  // Costs the subscribers of this job, and of any job; not those of other jobs.
  void Notify(const std::string& job_id);

 private:
  struct Subscriber {
    std::string job_id;
    Callback callback;
    bool removed = false;
    std::vector<std::thread::id> running_on;
  };
  using Subscribers = std::vector<std::shared_ptr<Subscriber>>;

  void AppendLocked(const std::string& job_id, Subscribers& found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RunsElsewhereLocked(const Subscriber& subscriber) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Call(Subscriber& subscriber) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar call_ended_;
  // Shared, because a subscriber that is being called may be unsubscribed meanwhile. Its fields
  // except job_id and callback are guarded by mutex_ too.
  std::unordered_map<int64_t, std::shared_ptr<Subscriber>> subscribers_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::map<int64_t, std::shared_ptr<Subscriber>>> by_job_
      ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace nightshift
