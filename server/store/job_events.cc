#include "server/store/job_events.h"

#include <algorithm>
#include <utility>

namespace nightshift {

int64_t JobEvents::Subscribe(const std::string& job_id, Callback callback) {
  auto subscriber = std::make_shared<Subscriber>();
  subscriber->job_id = job_id;
  subscriber->callback = std::move(callback);
  MutexLock lock(mutex_);
  const int64_t id = next_id_++;
  by_job_[job_id][id] = subscriber;
  subscribers_[id] = std::move(subscriber);
  return id;
}

void JobEvents::Unsubscribe(int64_t subscription) {
  MutexLock lock(mutex_);
  const auto found = subscribers_.find(subscription);
  if (found == subscribers_.end()) {
    return;
  }
  const std::shared_ptr<Subscriber> subscriber = found->second;
  subscribers_.erase(found);
  const auto of_job = by_job_.find(subscriber->job_id);
  of_job->second.erase(subscription);
  if (of_job->second.empty()) {
    by_job_.erase(of_job);
  }
  subscriber->removed = true;
  while (RunsElsewhereLocked(*subscriber)) {
    call_ended_.Wait(mutex_);
  }
}

void JobEvents::Notify(const std::string& job_id) {
  Subscribers found;
  {
    MutexLock lock(mutex_);
    AppendLocked(job_id, found);
    if (!job_id.empty()) {
      AppendLocked("", found);
    }
  }
  for (const std::shared_ptr<Subscriber>& subscriber : found) {
    Call(*subscriber);
  }
}

void JobEvents::AppendLocked(const std::string& job_id, Subscribers& found) {
  const auto of_job = by_job_.find(job_id);
  if (of_job == by_job_.end()) {
    return;
  }
  for (const auto& [id, subscriber] : of_job->second) {
    found.push_back(subscriber);
  }
}

bool JobEvents::RunsElsewhereLocked(const Subscriber& subscriber) {
  return std::any_of(
      subscriber.running_on.begin(), subscriber.running_on.end(),
      [](const std::thread::id& thread) { return thread != std::this_thread::get_id(); });
}

void JobEvents::Call(Subscriber& subscriber) {
  {
    MutexLock lock(mutex_);
    if (subscriber.removed) {
      return;
    }
    subscriber.running_on.push_back(std::this_thread::get_id());
  }
  subscriber.callback();
  MutexLock lock(mutex_);
  auto& running_on = subscriber.running_on;
  running_on.erase(std::find(running_on.begin(), running_on.end(), std::this_thread::get_id()));
  call_ended_.NotifyAll();
}

}  // namespace nightshift
