#include "engine/schedule/virtual_lanes.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

TEST(VirtualLanesTest, NoStepsTakeNoTime) {
  ASSERT_OK_AND_ASSIGN(const VirtualRun run, RunInVirtualTime({}, 2));
  EXPECT_EQ(run.makespan_ns, 0);
  EXPECT_EQ(run.lane_busy_ns, (std::vector<int64_t>{0, 0}));
}

TEST(VirtualLanesTest, ALaneRunsItsStepsOneAfterTheOther) {
  const std::vector<VirtualStep> steps = {{0, 5, {}}, {0, 7, {}}, {1, 3, {}}};
  ASSERT_OK_AND_ASSIGN(const VirtualRun run, RunInVirtualTime(steps, 2));
  EXPECT_EQ(run.steps[1].start_ns, 5);
  EXPECT_EQ(run.steps[1].end_ns, 12);
  EXPECT_EQ(run.steps[2].start_ns, 0);
  EXPECT_EQ(run.lane_busy_ns, (std::vector<int64_t>{12, 3}));
  EXPECT_EQ(run.makespan_ns, 12);
}

TEST(VirtualLanesTest, AStepStartsWhenTheLastOfItsWaitsHasEnded) {
  // Read ahead with two buffers: a read waits for the compute step that used its buffer before.
  const std::vector<VirtualStep> steps = {{0, 10, {}}, {1, 4, {0}},  {0, 10, {}},
                                          {1, 4, {2}}, {0, 10, {1}}, {1, 4, {4}}};
  ASSERT_OK_AND_ASSIGN(const VirtualRun run, RunInVirtualTime(steps, 2));
  EXPECT_EQ(run.steps[4].start_ns, 20);  // its buffer was free at 14, its lane at 20
  EXPECT_EQ(run.makespan_ns, 34);
}

TEST(VirtualLanesTest, AWaitMayPointForwardWhereNothingTurnsInACircle) {
  const std::vector<VirtualStep> steps = {{0, 1, {1}}, {1, 2, {}}};
  ASSERT_OK_AND_ASSIGN(const VirtualRun run, RunInVirtualTime(steps, 2));
  EXPECT_EQ(run.steps[0].start_ns, 2);
}

TEST(VirtualLanesTest, NamesAStepThatNeverStarts) {
  // Each lane's first step waits for the other lane's second.
  const std::vector<VirtualStep> steps = {{0, 1, {3}}, {1, 1, {2}}, {0, 1, {}}, {1, 1, {}}};
  EXPECT_THAT(RunInVirtualTime(steps, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, "step 0 of lane 0"));
  const std::vector<VirtualStep> self = {{0, 1, {0}}};
  EXPECT_THAT(RunInVirtualTime(self, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, "step 0 of lane 0"));
}

// The definition, step by step: in an order in which all waits point backwards, each time follows
// from those before.
TEST(VirtualLanesTest, RandomStepsStartAsSoonAsTheyCan) {
  std::mt19937 generator(7);
  const auto below = [&](size_t bound) { return generator() % bound; };
  for (int round = 0; round < 300; ++round) {
    const size_t num_lanes = 1 + below(6);
    std::vector<VirtualStep> steps(1 + below(60));
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i] = {below(num_lanes), static_cast<int64_t>(below(20)), {}};
      for (size_t waits = i == 0 ? 0 : below(4); waits > 0; --waits) {
        steps[i].waits.push_back(below(i));
      }
    }
    ASSERT_OK_AND_ASSIGN(const VirtualRun run, RunInVirtualTime(steps, num_lanes));
    std::vector<int64_t> lane_free_us(num_lanes, 0);
    for (size_t i = 0; i < steps.size(); ++i) {
      int64_t start_ns = lane_free_us[steps[i].lane];
      for (const size_t wait : steps[i].waits) {
        start_ns = std::max(start_ns, run.steps[wait].end_ns);
      }
      ASSERT_EQ(run.steps[i].start_ns, start_ns);
      ASSERT_EQ(run.steps[i].end_ns, start_ns + steps[i].duration_ns);
      lane_free_us[steps[i].lane] = run.steps[i].end_ns;
    }
    EXPECT_EQ(run.makespan_ns, *std::max_element(lane_free_us.begin(), lane_free_us.end()));
  }
}

}  // namespace
}  // namespace nightshift
