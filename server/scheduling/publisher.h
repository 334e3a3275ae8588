// Publisher: the runner's writes to the store. Results go out asynchronously, a bounded number of
// writes ahead of the disk; a full disk pauses the runner instead of losing work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/metrics/metrics.h"
#include "server/store/store_actor.h"

namespace nightshift {

struct PublisherOptions {
  // Publications that may be on their way: one is committed while the next sweep runs.
  int64_t max_pending = 2;
  // Between attempts while the disk is full.
  int64_t retry_interval_us = 1'000'000;
};

// Called by one thread (the runner), except GiveUp and the store's answers.
class Publisher {
 public:
  Publisher(PublisherOptions options, StoreActor& store, const Clock& clock, Metrics& metrics);
  // Waits for the answers to what is on its way.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Publishes rows in one write, with what is known of jobs' runs by then. Waits for a place, and
  // while the disk is full.
  void Publish(std::vector<FinishedRow> rows, std::vector<JobReport> reports);
  // Waits until all that was published is durable. Errors: as Write.
  absl::Status Flush();
  // Makes one change and waits until it is durable, trying again while the disk is full. Errors:
  // the operation's; RESOURCE_EXHAUSTED only after GiveUp.
  absl::Status Write(const std::string& job_id, const StoreActor::WriteOperation& operation);
  // As StoreActor::Write, but waits for a place in the queue instead of being refused.
  void Submit(const std::string& job_id, StoreActor::WriteOperation operation,
              StoreActor::Done done);
  // Waits for one retry interval, or until GiveUp.
  void WaitToRetry();
  // From now on a full disk fails what does not fit: its results will be computed again. Any
  // thread.
  void GiveUp();
  // Not OK once the store failed for good: nothing will be durable any more.
  absl::Status status();

 private:
  struct Publication {
    std::vector<FinishedRow> rows;
    std::vector<JobReport> reports;
    // Of its last run, which the store's thread has before it answers.
    mutable int64_t dropped = 0;
  };
  // Shared between the queue of the store, which may run a write twice, and the retries.
  using SharedPublication = std::shared_ptr<const Publication>;

  void Send(SharedPublication publication);
  void OnAnswer(const SharedPublication& publication, const absl::Status& status);
  void Count(const Publication& publication);
  // Waits until at most `most` writes are pending, sending again those that the full disk refused.
  void WaitForPending(int64_t most);

  const PublisherOptions options_;
  StoreActor& store_;
  const Clock& clock_;
  Metrics& metrics_;
  Mutex mutex_;
  CondVar changed_;
  int64_t pending_ ABSL_GUARDED_BY(mutex_) = 0;  // refused ones included
  std::vector<SharedPublication> refused_ ABSL_GUARDED_BY(mutex_);
  bool giving_up_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
