// Quota: how much of the daemon one tenant may take.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

inline constexpr int64_t kNoQuota = INT64_MAX;

// What a line of the access file does not name is not limited.
struct Quota {
  int64_t active_jobs = kNoQuota;         // that have not ended
  int64_t queued_requests = kNoQuota;     // of those, without a result
  int64_t stored_mib = kNoQuota;          // inputs and results of jobs that are kept
  int64_t submits_per_minute = kNoQuota;  // calls that make jobs; so many may come at once
  int64_t streams = kNoQuota;             // calls at one time that last: of uploads, waits, results
  int32_t priority = 3;  // the highest of a job: 1 low, 2 normal, 3 high (v1.Priority)
  double weight = 1;     // share of the engine beside tenants of weight 1
};

// Of words as "active-jobs=10", in any order. INVALID_ARGUMENT: an unknown or repeated key, a value
// that is no number above 0.
absl::StatusOr<Quota> ParseQuota(const std::vector<absl::string_view>& words);

}  // namespace nightshift
