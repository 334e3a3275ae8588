#include "engine/schedule/timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nightshift {
namespace {

// Length of the union of intervals.
int64_t Covered(std::vector<std::pair<int64_t, int64_t>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t covered = 0;
  int64_t end = INT64_MIN;
  for (const auto& [first, last] : intervals) {
    covered += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return covered;
}

std::string Event(const StepTimes& step) {
  return absl::StrFormat(
      R"({"name":"%s","ph":"X","pid":1,"tid":%d,"ts":%d,"dur":%d,)"
      R"("args":{"layer":%d,"batch":%d,"bytes":%d,"issued_us_before":%d,"waited_us":%d}})",
      StepKindName(step.kind), static_cast<int>(step.lane), step.start_us,
      step.end_us - step.start_us, step.layer, step.batch, step.bytes,
      step.start_us - step.issue_us, step.waited_us);
}

}  // namespace

void SweepTimes::Add(const SweepTimes& other) {
  sweeps += other.sweeps;
  wall_us += other.wall_us;
  for (size_t i = 0; i < kNumLanes; ++i) {
    lanes[i].busy_us += other.lanes[i].busy_us;
    lanes[i].bytes += other.lanes[i].bytes;
    lanes[i].waited_us += other.lanes[i].waited_us;
  }
}

std::string Bottleneck(const SweepTimes& times) {
  const auto busiest = std::max_element(
      times.lanes.begin(), times.lanes.end(),
      [](const LaneTimes& a, const LaneTimes& b) { return a.busy_us < b.busy_us; });
  if (times.wall_us <= 0 || busiest->busy_us == 0) {
    return "";
  }
  const auto lane = static_cast<LaneId>(busiest - times.lanes.begin());
  return absl::StrCat(LaneName(lane), " ", 100 * busiest->busy_us / times.wall_us, " %");
}

SweepTimes Summarise(std::span<const StepTimes> steps, int64_t begin_us, int64_t end_us) {
  SweepTimes times;
  times.sweeps = 1;
  times.wall_us = end_us - begin_us;
  std::array<std::vector<std::pair<int64_t, int64_t>>, kNumLanes> busy;
  for (const StepTimes& step : steps) {
    const size_t lane = static_cast<size_t>(step.lane);
    times.lanes[lane].bytes += step.bytes;
    times.lanes[lane].waited_us += step.waited_us;
    const int64_t first = std::max(step.start_us, begin_us);
    const int64_t last = std::min(step.end_us, end_us);
    if (first < last) {
      busy[lane].emplace_back(first, last);
    }
  }
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    times.lanes[lane].busy_us = Covered(std::move(busy[lane]));
  }
  return times;
}

void Timeline::Add(std::span<const StepTimes> steps) {
  steps_.insert(steps_.end(), steps.begin(), steps.end());
  while (steps_.size() > max_steps_) {
    steps_.pop_front();
  }
}

std::string ChromeTrace(std::span<const StepTimes> steps) {
  std::string trace = "{\"traceEvents\":[\n";
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    absl::StrAppend(&trace, R"({"name":"thread_name","ph":"M","pid":1,"tid":)", lane,
                    R"(,"args":{"name":")", LaneName(static_cast<LaneId>(lane)), "\"}},\n");
  }
  for (const StepTimes& step : steps) {
    absl::StrAppend(&trace, Event(step), ",\n");
  }
  absl::StrAppend(&trace, R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"engine"}})",
                  "\n]}\n");
  return trace;
}

}  // namespace nightshift
