// What a person sees of a running job: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// "[#######.......] 512/1000, 2 failed, 531 tokens/s, ETA 3m20s (3m05s to 4m10s)"; parts that are
// not known are left out, a job that does not run yet says so. Pure.
std::string ProgressText(const v1::Job& job, bool with_bar);

// "12s", "3m20s", "2h05m", "4d03h": two units at most.
std::string ShortDuration(absl::Duration duration);

// "1,234,567"
std::string GroupedNumber(int64_t number);

// "1.5 GiB"
std::string ByteSize(int64_t bytes);

// Fills in rate and ETA that the server does not give, from how the counts moved between calls.
class ProgressEstimate {
 public:
  v1::Job Estimate(v1::Job job, absl::Time now);

 private:
  std::optional<absl::Time> start_;
  int64_t start_done_ = 0;
  int64_t start_tokens_ = 0;
};

// Requests with an outcome.
int64_t DoneOf(const v1::JobCounts& counts);

}  // namespace nightshift
