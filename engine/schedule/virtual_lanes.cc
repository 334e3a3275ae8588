#include "engine/schedule/virtual_lanes.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace nightshift {

VirtualTimes VirtualLanes::Run(size_t lane, int64_t duration_ns, std::span<const int64_t> waits) {
  CHECK_LT(lane, lane_ends_.size());
  CHECK_GE(duration_ns, 0);
  VirtualTimes times{.start_ns = lane_ends_[lane]};
  for (const int64_t wait : waits) {
    CHECK_LT(static_cast<size_t>(wait), step_ends_.size());
    times.start_ns = std::max(times.start_ns, step_ends_[static_cast<size_t>(wait)]);
  }
  times.end_ns = times.start_ns + duration_ns;
  lane_ends_[lane] = times.end_ns;
  step_ends_.push_back(times.end_ns);
  return times;
}

void VirtualLanes::Work(size_t lane, int64_t duration_ns) {
  CHECK_LT(lane, lane_ends_.size());
  CHECK_GE(duration_ns, 0);
  lane_ends_[lane] += duration_ns;
}

}  // namespace nightshift
