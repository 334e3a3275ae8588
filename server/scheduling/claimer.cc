#include "server/scheduling/claimer.h"

#include <memory>
#include <set>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/failpoint.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Those of `preferred` that are not among `rows`.
std::vector<int64_t> LeftOf(std::vector<int64_t> preferred, const std::vector<ClaimedRow>& rows) {
  std::set<int64_t> claimed;
  for (const ClaimedRow& row : rows) {
    claimed.insert(row.index);
  }
  std::erase_if(preferred, [&](int64_t index) { return claimed.count(index) != 0; });
  return preferred;
}

}  // namespace

Claimer::~Claimer() {
  Wait();
}

void Claimer::Begin(const std::string& job_id, int64_t limit, std::vector<int64_t> preferred) {
  {
    MutexLock lock(mutex_);
    CHECK(!in_flight_);
    in_flight_ = true;
  }
  // Shared between the operation, which may run twice, and its answer.
  auto rows = std::make_shared<std::vector<ClaimedRow>>();
  const int64_t now_us = clock_.WallMicros();
  publisher_.Submit(
      job_id,
      [rows, job_id, limit, preferred, now_us](JobStore& store) -> absl::Status {
        ASSIGN_OR_RETURN(*rows, store.Claim(job_id, limit, preferred, now_us));
        return absl::OkStatus();
      },
      [this, rows, job_id, preferred](const absl::Status& status) {
        Failpoint("claim_committed");
        if (!status.ok()) {
          rows->clear();
        }
        // The wakeup goes first: after the lock is released the claimer may be gone.
        MutexLock lock(mutex_);
        answers_.push_back({.job_id = job_id,
                            .status = status,
                            .rows = *rows,
                            .left = LeftOf(preferred, *rows)});
        in_flight_ = false;
        wakeup_.Notify();
        answered_.NotifyAll();
      });
}

bool Claimer::in_flight() {
  MutexLock lock(mutex_);
  return in_flight_;
}

void Claimer::Wait() {
  MutexLock lock(mutex_);
  while (in_flight_) {
    answered_.Wait(mutex_);
  }
}

std::vector<ClaimAnswer> Claimer::TakeAnswers() {
  MutexLock lock(mutex_);
  return std::exchange(answers_, {});
}

}  // namespace nightshift
