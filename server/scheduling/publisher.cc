#include "server/scheduling/publisher.h"

#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"

namespace nightshift {
namespace {

const char* OutcomeName(RowState outcome) {
  switch (outcome) {
    case RowState::kSucceeded:
      return "succeeded";
    case RowState::kCancelled:
      return "cancelled";
    case RowState::kExpired:
      return "expired";
    case RowState::kFailed:
    case RowState::kPending:
    case RowState::kRunning:
      break;
  }
  return "failed";
}

}  // namespace

Publisher::Publisher(PublisherOptions options, StoreActor& store, const Clock& clock,
                     Metrics& metrics)
    : options_(options), store_(store), clock_(clock), metrics_(metrics) {}

Publisher::~Publisher() {
  GiveUp();
  WaitForPending(0);
}

void Publisher::Publish(std::vector<FinishedRow> rows, std::vector<JobReport> reports) {
  if (rows.empty()) {
    return;
  }
  WaitForPending(options_.max_pending - 1);
  {
    MutexLock lock(mutex_);
    ++pending_;
  }
  Send(std::make_shared<const Publication>(
      Publication{.rows = std::move(rows), .reports = std::move(reports)}));
}

void Publisher::Send(SharedPublication publication) {
  const int64_t now_us = clock_.WallMicros();
  Submit(
      "",
      [publication, now_us](JobStore& store) -> absl::Status {
        Failpoint("publish_begun");
        const absl::Status saved = store.SaveReports(publication->reports);
        if (!saved.ok()) {
          return saved;
        }
        const absl::StatusOr<int64_t> dropped = store.Publish(publication->rows, now_us);
        publication->dropped = dropped.value_or(0);
        if (publication->dropped > 0) {
          LOG(WARNING) << "publications_dropped rows=" << publication->dropped;
        }
        return dropped.status();
      },
      [this, publication](const absl::Status& status) { OnAnswer(publication, status); });
}

void Publisher::OnAnswer(const SharedPublication& publication, const absl::Status& status) {
  Failpoint("publish_committed");
  if (status.ok()) {
    Count(*publication);
    std::set<std::string> job_ids;
    for (const FinishedRow& row : publication->rows) {
      job_ids.insert(row.job_id);
    }
    for (const std::string& job_id : job_ids) {
      store_.events().Notify(job_id);
    }
  }
  Failpoint("subscribers_told");
  MutexLock lock(mutex_);
  const bool again = absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
  if (again && !giving_up_) {
    refused_.push_back(publication);
  } else {
    --pending_;
    if (absl::IsInternal(status)) {
      status_ = status;
    } else if (!status.ok()) {
      LOG(ERROR) << "publication_lost rows=" << publication->rows.size() << " error=\""
                 << status.message() << "\"";
    }
  }
  changed_.NotifyAll();
}

void Publisher::Count(const Publication& publication) {
  constexpr double kSecondsPerMicro = 1e-6;
  std::map<RowState, int64_t> outcomes;
  for (const FinishedRow& row : publication.rows) {
    ++outcomes[row.outcome];
  }
  for (const auto& [outcome, rows] : outcomes) {
    metrics_.Requests(OutcomeName(outcome)).Increment(static_cast<double>(rows));
  }
  metrics_.duplicates_dropped.Increment(static_cast<double>(publication.dropped));
  metrics_.last_publish_timestamp.Set(kSecondsPerMicro * static_cast<double>(clock_.WallMicros()));
}

void Publisher::WaitForPending(int64_t most) {
  for (;;) {
    std::vector<SharedPublication> again;
    {
      MutexLock lock(mutex_);
      while (pending_ > most && refused_.empty()) {
        changed_.Wait(mutex_);
      }
      again.swap(refused_);
      if (giving_up_) {
        pending_ -= static_cast<int64_t>(again.size());
        again.clear();
      }
      if (again.empty() && pending_ <= most) {
        return;
      }
    }
    if (!again.empty()) {
      LOG(WARNING) << "publications_refused writes=" << again.size() << " action=retry";
      WaitToRetry();
    }
    for (SharedPublication& publication : again) {
      Send(std::move(publication));
    }
  }
}

absl::Status Publisher::Flush() {
  WaitForPending(0);
  return status();
}

absl::Status Publisher::Write(const std::string& job_id,
                              const StoreActor::WriteOperation& operation) {
  for (;;) {
    const absl::Status answer = store_.WriteAndWait(job_id, operation);
    const bool again = absl::IsResourceExhausted(answer) || absl::IsUnavailable(answer);
    {
      MutexLock lock(mutex_);
      if (absl::IsInternal(answer)) {
        status_ = answer;
      }
      if (!again || giving_up_) {
        return answer;
      }
    }
    LOG(WARNING) << "write_refused job=" << job_id << " action=retry";
    WaitToRetry();
  }
}

void Publisher::Submit(const std::string& job_id, StoreActor::WriteOperation operation,
                       StoreActor::Done done) {
  if (store_.Write(job_id, operation, done).ok()) {
    return;
  }
  done(store_.WriteAndWait(job_id, std::move(operation)));
}

void Publisher::WaitToRetry() {
  const int64_t until_us = clock_.MonotonicMicros() + options_.retry_interval_us;
  MutexLock lock(mutex_);
  int64_t left_us = options_.retry_interval_us;
  while (!giving_up_ && left_us > 0 &&
         changed_.WaitFor(mutex_, std::chrono::microseconds(left_us))) {
    left_us = until_us - clock_.MonotonicMicros();
  }
}

void Publisher::GiveUp() {
  MutexLock lock(mutex_);
  giving_up_ = true;
  changed_.NotifyAll();
}

absl::Status Publisher::status() {
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace nightshift
