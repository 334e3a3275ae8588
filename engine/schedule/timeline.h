// Timeline: when each step of the last sweeps was issued, began and ended, and what that says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "engine/schedule/sweep_steps.h"

namespace nightshift {

// Times in microseconds of the monotonic clock.
struct StepTimes {
  StepKind kind = StepKind::kCompute;
  LaneId lane = LaneId::kCompute;
  int64_t layer = 0;
  int64_t batch = 0;
  int64_t bytes = 0;
  int64_t issue_us = 0;
  int64_t start_us = 0;   // handed to the hardware
  int64_t end_us = 0;     // the data is there
  int64_t waited_us = 0;  // that the compute lane stood still for this step
};

struct LaneTimes {
  int64_t busy_us = 0;    // during which at least one step was between its start and its end
  int64_t bytes = 0;      // moved
  int64_t waited_us = 0;  // that the compute lane waited for it
};

// Of one sweep, or of several together.
struct SweepTimes {
  int64_t sweeps = 0;
  int64_t wall_us = 0;
  std::array<LaneTimes, kNumLanes> lanes;

  const LaneTimes& of(LaneId lane) const { return lanes[static_cast<size_t>(lane)]; }
  void Add(const SweepTimes& other);
};

// The lane that was busy for the largest share of the time, with that share: "read 93 %". Empty
// when nothing was.
std::string Bottleneck(const SweepTimes& times);

// Busy times and bytes of the steps' parts within [begin_us, end_us).
SweepTimes Summarise(std::span<const StepTimes> steps, int64_t begin_us, int64_t end_us);

// The last steps, a bounded number of them.
class Timeline {
 public:
  explicit Timeline(size_t max_steps) : max_steps_(max_steps) {}

  void Add(std::span<const StepTimes> steps);
  std::vector<StepTimes> steps() const { return {steps_.begin(), steps_.end()}; }

 private:
  size_t max_steps_;
  std::deque<StepTimes> steps_;
};

// As many as a trace may have to stay below 4 MiB, the most that one gRPC message carries: 262
// bytes each, of which the text takes 137, its seven numbers the rest.
inline constexpr size_t kMaxTraceSteps = 16'000;

// The steps as a trace that chrome://tracing and Perfetto open: one row a lane.
// Source: "Trace Event Format", complete events.
std::string ChromeTrace(std::span<const StepTimes> steps);

}  // namespace nightshift
