// Claimer: takes rows of jobs from the store, one claim at a time, beside the sweeps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/scheduling/publisher.h"
#include "server/scheduling/wakeup.h"
#include "server/store/job_store.h"

namespace nightshift {

struct ClaimAnswer {
  std::string job_id;
  absl::Status status;
  std::vector<ClaimedRow> rows;
  std::vector<int64_t> left;  // preferred ones that were not claimed
};

// One thread, but for the store's answers. Everything it is given must outlive it.
class Claimer {
 public:
  Claimer(Publisher& publisher, Wakeup& wakeup, const Clock& clock)
      : publisher_(publisher), wakeup_(wakeup), clock_(clock) {}
  // Waits for the claim that is on its way.
  ~Claimer();

  // Begins a claim (JobStore::Claim); none may be on its way. The rows' attempts are durable when it
  // is answered.
  void Begin(const std::string& job_id, int64_t limit, std::vector<int64_t> preferred);
  bool in_flight();
  // Waits until no claim is on its way.
  void Wait();
  // Takes what was answered since the last call.
  std::vector<ClaimAnswer> TakeAnswers();

 private:
  Publisher& publisher_;
  Wakeup& wakeup_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar answered_;
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<ClaimAnswer> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
