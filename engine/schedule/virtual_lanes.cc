#include "engine/schedule/virtual_lanes.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

namespace nightshift {
namespace {

// What must have ended before each step starts: its waits and the step before it on its lane.
class Dependencies {
 public:
  Dependencies(std::span<const VirtualStep> steps, size_t num_lanes)
      : missing_(steps.size(), 0), dependents_(steps.size()) {
    constexpr size_t kNone = SIZE_MAX;
    std::vector<size_t> last_of_lane(num_lanes, kNone);
    for (size_t i = 0; i < steps.size(); ++i) {
      CHECK_LT(steps[i].lane, num_lanes);
      CHECK_GE(steps[i].duration_ns, 0);
      if (last_of_lane[steps[i].lane] != kNone) {
        Add(last_of_lane[steps[i].lane], i);
      }
      last_of_lane[steps[i].lane] = i;
      for (const size_t wait : steps[i].waits) {
        CHECK_LT(wait, steps.size());
        Add(wait, i);
      }
    }
  }

  bool can_start(size_t step) const { return missing_[step] == 0; }
  const std::vector<size_t>& dependents(size_t step) const { return dependents_[step]; }
  void CountDown(size_t step) { --missing_[step]; }

 private:
  void Add(size_t before, size_t after) {
    ++missing_[after];
    dependents_[before].push_back(after);
  }

  std::vector<size_t> missing_;
  std::vector<std::vector<size_t>> dependents_;
};

// The steps that can start, none of which waits for another one of them.
std::vector<size_t> FirstSteps(const Dependencies& dependencies, size_t num_steps) {
  std::vector<size_t> steps;
  for (size_t i = 0; i < num_steps; ++i) {
    if (dependencies.can_start(i)) {
      steps.push_back(i);
    }
  }
  return steps;
}

absl::Status Deadlock(std::span<const VirtualStep> steps, const std::vector<bool>& has_ended) {
  const auto first = std::find(has_ended.begin(), has_ended.end(), false);
  const auto step = static_cast<size_t>(first - has_ended.begin());
  std::string waits = "the steps before it on its lane";
  for (const size_t wait : steps[step].waits) {
    if (!has_ended[wait]) {
      waits = absl::StrCat("step ", wait, " of lane ", steps[wait].lane);
      break;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("run ", steps.size(), " steps: step ", step, " of lane ", steps[step].lane,
                   " never starts, it waits for ", waits, ", which waits for it"));
}

}  // namespace

absl::StatusOr<VirtualRun> RunInVirtualTime(std::span<const VirtualStep> steps, size_t num_lanes) {
  Dependencies dependencies(steps, num_lanes);
  VirtualRun run{.steps = std::vector<VirtualTimes>(steps.size()),
                 .lane_busy_ns = std::vector<int64_t>(num_lanes, 0)};
  std::vector<bool> has_ended(steps.size(), false);
  std::vector<size_t> ready = FirstSteps(dependencies, steps.size());
  size_t num_ended = 0;
  while (!ready.empty()) {
    const size_t step = ready.back();
    ready.pop_back();
    VirtualTimes& times = run.steps[step];
    times.end_ns = times.start_ns + steps[step].duration_ns;
    run.lane_busy_ns[steps[step].lane] += steps[step].duration_ns;
    run.makespan_ns = std::max(run.makespan_ns, times.end_ns);
    has_ended[step] = true;
    ++num_ended;
    for (const size_t dependent : dependencies.dependents(step)) {
      run.steps[dependent].start_ns = std::max(run.steps[dependent].start_ns, times.end_ns);
      dependencies.CountDown(dependent);
      if (dependencies.can_start(dependent)) {
        ready.push_back(dependent);
      }
    }
  }
  if (num_ended < steps.size()) {
    return Deadlock(steps, has_ended);
  }
  return run;
}

}  // namespace nightshift
