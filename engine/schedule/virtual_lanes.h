// VirtualLanes: steps on lanes in virtual time, as the lanes of the executor run them. Pure.
//
// A lane runs its steps one after the other, in the order in which they are given; a step starts
// when the one before it on its lane and all that it waits for have ended. What it waits for was
// given before it, so no steps wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nightshift {

struct VirtualTimes {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class VirtualLanes {
 public:
  explicit VirtualLanes(size_t num_lanes) : lane_ends_(num_lanes, 0) {}

  // The next step, of a duration >= 0. `waits` are numbers of steps; the first one is 0.
  VirtualTimes Run(size_t lane, int64_t duration_ns, std::span<const int64_t> waits);
  // The lane works on what no step waits for.
  void Work(size_t lane, int64_t duration_ns);

 private:
  std::vector<int64_t> lane_ends_;
  std::vector<int64_t> step_ends_;
};

}  // namespace nightshift
