// Virtual lanes: steps on lanes in virtual time, as the lanes of the executor run them. Pure.
//
// A lane runs its steps one after the other, in the order of the list; a step starts when the one
// before it on its lane and all that it waits for have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace nightshift {

struct VirtualStep {
  size_t lane = 0;
  int64_t duration_ns = 0;    // >= 0
  std::vector<size_t> waits;  // indices of steps, on any lane, before or after this one in the list
};

struct VirtualTimes {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct VirtualRun {
  std::vector<VirtualTimes> steps;    // one a step; the first start is 0
  std::vector<int64_t> lane_busy_ns;  // sum of the durations of each lane's steps
  int64_t makespan_ns = 0;            // the last end
};

// Linear in steps and waits. Lanes are numbered below num_lanes.
// Errors: FAILED_PRECONDITION naming the first step, its lane and the step that it waits for, when
// steps wait for each other and never end.
absl::StatusOr<VirtualRun> RunInVirtualTime(std::span<const VirtualStep> steps, size_t num_lanes);

}  // namespace nightshift
