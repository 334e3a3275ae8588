#include "engine/schedule/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nightshift {
namespace {

StepTimes Times(LaneId lane, int64_t start_us, int64_t end_us, int64_t bytes = 0,
                int64_t waited_us = 0) {
  StepTimes times;
  times.kind = lane == LaneId::kRead ? StepKind::kReadWeights : StepKind::kCompute;
  times.lane = lane;
  times.bytes = bytes;
  times.issue_us = start_us - 1;
  times.start_us = start_us;
  times.end_us = end_us;
  times.waited_us = waited_us;
  return times;
}

TEST(TimelineTest, ALaneIsBusyWhileAnyOfItsStepsIsOnItsWay) {
  const std::vector<StepTimes> steps = {
      Times(LaneId::kRead, 10, 30, 5), Times(LaneId::kRead, 20, 40, 6, 3),
      Times(LaneId::kRead, 60, 200, 7), Times(LaneId::kCompute, 0, 50)};
  const SweepTimes times = Summarise(steps, 0, 100);
  EXPECT_EQ(times.of(LaneId::kRead).busy_us, 30 + 40);  // the last step goes on after the sweep
  EXPECT_EQ(times.of(LaneId::kRead).bytes, 18);
  EXPECT_EQ(times.of(LaneId::kRead).waited_us, 3);
  EXPECT_EQ(times.of(LaneId::kCompute).busy_us, 50);
  EXPECT_EQ(times.of(LaneId::kWrite).busy_us, 0);
  EXPECT_EQ(times.wall_us, 100);
}

TEST(TimelineTest, TheBottleneckIsTheLaneThatWasBusyForMostOfTheTime) {
  const std::vector<StepTimes> steps = {Times(LaneId::kRead, 0, 93),
                                        Times(LaneId::kCompute, 0, 50)};
  SweepTimes times = Summarise(steps, 0, 100);
  EXPECT_EQ(Bottleneck(times), "read 93 %");
  times.Add(Summarise(std::vector<StepTimes>{Times(LaneId::kCompute, 0, 100)}, 0, 100));
  EXPECT_EQ(times.sweeps, 2);
  EXPECT_EQ(Bottleneck(times), "compute 75 %");
  EXPECT_EQ(Bottleneck(SweepTimes{}), "");
}

TEST(TimelineTest, KeepsTheLastSteps) {
  Timeline timeline(3);
  timeline.Add(std::vector<StepTimes>{Times(LaneId::kRead, 1, 2), Times(LaneId::kRead, 2, 3)});
  timeline.Add(std::vector<StepTimes>{Times(LaneId::kRead, 3, 4), Times(LaneId::kRead, 4, 5)});
  std::vector<int64_t> starts;
  for (const StepTimes& step : timeline.steps()) {
    starts.push_back(step.start_us);
  }
  EXPECT_THAT(starts, testing::ElementsAre(2, 3, 4));
}

TEST(TimelineTest, TheTraceIsJsonWithOneCompleteEventAStep) {
  const std::vector<StepTimes> steps = {Times(LaneId::kRead, 10, 30, 5, 2)};
  const nlohmann::json trace = nlohmann::json::parse(ChromeTrace(steps), nullptr, false);
  ASSERT_FALSE(trace.is_discarded());
  int complete = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      ++complete;
      EXPECT_EQ(event["name"], "read weights");
      EXPECT_EQ(event["ts"], 10);
      EXPECT_EQ(event["dur"], 20);
      EXPECT_EQ(event["args"]["bytes"], 5);
      EXPECT_EQ(event["args"]["waited_us"], 2);
    }
  }
  EXPECT_EQ(complete, 1);
}

TEST(TimelineTest, TheLargestTraceFitsIntoAMessage) {
  // Of the kind with the longest name; times of thirty years, and a petabyte in each step.
  constexpr int64_t kLarge = 1'000'000'000'000'000;
  StepTimes step;
  for (int kind = 0; kind <= static_cast<int>(StepKind::kWriteActivations); ++kind) {
    if (std::string(StepKindName(static_cast<StepKind>(kind))).size() >
        std::string(StepKindName(step.kind)).size()) {
      step.kind = static_cast<StepKind>(kind);
    }
  }
  step.lane = LaneId::kWrite;
  step.layer = 1'000'000;
  step.batch = 1'000'000;
  step.bytes = kLarge;
  step.start_us = kLarge;
  step.issue_us = -kLarge;
  step.end_us = 2 * kLarge;
  step.waited_us = kLarge;
  const std::string trace = ChromeTrace(std::vector<StepTimes>(kMaxTraceSteps, step));
  EXPECT_LT(trace.size(), (4U << 20) - 64);  // beside the message's own bytes
  EXPECT_GT(trace.size(), 3U << 20);
}

}  // namespace
}  // namespace nightshift
