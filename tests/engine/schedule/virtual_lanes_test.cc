#include "engine/schedule/virtual_lanes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

constexpr std::array<int64_t, 0> kNothing = {};

TEST(VirtualLanesTest, ALaneRunsItsStepsOneAfterTheOther) {
  VirtualLanes lanes(2);
  EXPECT_EQ(lanes.Run(0, 5, kNothing).start_ns, 0);
  const VirtualTimes second = lanes.Run(0, 7, kNothing);
  EXPECT_EQ(second.start_ns, 5);
  EXPECT_EQ(second.end_ns, 12);
  EXPECT_EQ(lanes.Run(1, 3, kNothing).start_ns, 0);
}

TEST(VirtualLanesTest, AStepStartsWhenTheLastOfItsWaitsHasEnded) {
  // Read ahead with two buffers: a read waits for the compute step that used its buffer before.
  VirtualLanes lanes(2);
  const auto run = [&](size_t lane, int64_t duration_ns, std::vector<int64_t> waits) {
    return lanes.Run(lane, duration_ns, waits);
  };
  run(0, 10, {});
  run(1, 4, {0});
  run(0, 10, {});
  run(1, 4, {2});
  EXPECT_EQ(run(0, 10, {1}).start_ns, 20);  // its buffer was free at 14, its lane at 20
  EXPECT_EQ(run(1, 4, {4}).end_ns, 34);
}

TEST(VirtualLanesTest, WhatNoStepWaitsForTakesItsLane) {
  VirtualLanes lanes(2);
  lanes.Run(0, 10, kNothing);
  lanes.Work(1, 4);
  EXPECT_EQ(lanes.Run(1, 1, kNothing).start_ns, 4);
  lanes.Work(1, 2);
  const std::array<int64_t, 1> first = {0};
  EXPECT_EQ(lanes.Run(1, 1, first).start_ns, 10) << "worked while it waited";
}

TEST(VirtualLanesDeathTest, StepsWaitForNothingThatComesLater) {
  VirtualLanes lanes(1);
  const std::array<int64_t, 1> itself = {0};
  EXPECT_DEATH(lanes.Run(0, 1, itself), "step_ends_");
}

// The definition, step by step.
TEST(VirtualLanesTest, RandomStepsStartAsSoonAsTheyCan) {
  std::mt19937 generator(7);
  const auto below = [&](size_t bound) { return generator() % bound; };
  for (int round = 0; round < 300; ++round) {
    const size_t num_lanes = 1 + below(6);
    VirtualLanes lanes(num_lanes);
    std::vector<int64_t> ends;
    std::vector<size_t> lane_of;
    for (size_t i = 0; i < 1 + below(60); ++i) {
      const size_t lane = below(num_lanes);
      const int64_t duration_ns = static_cast<int64_t>(below(20));
      std::vector<int64_t> waits;
      for (size_t more = i == 0 ? 0 : below(4); more > 0; --more) {
        waits.push_back(static_cast<int64_t>(below(i)));
      }
      int64_t start_ns = 0;
      for (size_t before = 0; before < i; ++before) {
        const bool is_waited_for =
            std::find(waits.begin(), waits.end(), static_cast<int64_t>(before)) != waits.end();
        if (lane_of[before] == lane || is_waited_for) {
          start_ns = std::max(start_ns, ends[before]);
        }
      }
      const VirtualTimes times = lanes.Run(lane, duration_ns, waits);
      ASSERT_EQ(times.start_ns, start_ns);
      ASSERT_EQ(times.end_ns, start_ns + duration_ns);
      ends.push_back(times.end_ns);
      lane_of.push_back(lane);
    }
  }
}

}  // namespace
}  // namespace nightshift
