// ProfileRefinement: how far a machine's work is from what its measured rates predict, learned from
// sweeps. Pure: no clock, no order but that of the observations.
//
// Each lane has a factor of its own, the median of its last ratios of observed to predicted time. A
// sweep that something else on the machine disturbed moves a median by one place at most.
// Predictions that are observed here are those of the measured rates alone, without the factor:
// nothing is learned twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "engine/schedule/sweep_steps.h"

namespace nightshift {

class ProfileRefinement {
 public:
  static constexpr size_t kRecent = 33;       // ratios that count, of each lane
  static constexpr size_t kLeast = 5;         // fewer say nothing
  static constexpr double kMostFactor = 2.0;  // and at least 1 / kMostFactor
  static constexpr double kMostRatio = 64.0;  // of one observation; others count as this

  // A sweep's time on a lane. Times that are not above 0 and finite are left out: a lane that had
  // nothing to do tells nothing.
  void Observe(LaneId lane, double predicted_seconds, double observed_seconds);

  // By what predicted seconds of a lane are to be multiplied: 1 until `kLeast` sweeps were seen.
  double Factor(LaneId lane) const;

  // Natural logarithms of observed / predicted of a lane, oldest first, at most kRecent; each
  // within log(kMostRatio) of 0.
  const std::vector<double>& recent(LaneId lane) const { return lanes_[Index(lane)]; }
  bool empty() const;
  // Adds one of those again, as it was kept. Errors: INVALID_ARGUMENT out of that range, or with
  // kRecent there already.
  absl::Status Restore(LaneId lane, double log_ratio);

  bool operator==(const ProfileRefinement&) const = default;

 private:
  static size_t Index(LaneId lane) { return static_cast<size_t>(lane); }

  std::array<std::vector<double>, kNumLanes> lanes_;
};

}  // namespace nightshift
