#include "engine/execute/step_lanes.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

Step MakeStep(int64_t id, StepKind kind, std::vector<int64_t> waits = {}) {
  Step step;
  step.id = id;
  step.kind = kind;
  step.waits = std::move(waits);
  return step;
}

const RealClock kClock;

TEST(StepLanesTest, AStepRunsWhenAllThatItWaitsForHasEnded) {
  StepLanes lanes(kClock);
  std::atomic<bool> is_read = false;
  std::atomic<bool> was_read = false;
  Fence gate;
  lanes.Issue(MakeStep(0, StepKind::kReadKv), [&] {
    const absl::Status status = gate.Wait();
    is_read = true;
    return status;
  });
  lanes.Issue(MakeStep(1, StepKind::kUploadKv, {0}), [&] {
    was_read = is_read.load();
    return absl::OkStatus();
  });
  gate.Complete(absl::OkStatus());
  const Step computation = MakeStep(2, StepKind::kCompute, {1});
  lanes.Begin(computation);
  EXPECT_TRUE(was_read);
  lanes.End(computation, absl::OkStatus());
  EXPECT_EQ(lanes.EndSweep().size(), 3U);
  EXPECT_FALSE(lanes.failure().has_value());
}

TEST(StepLanesTest, WhatDependsOnAFailedStepIsLeftOutAndTheFirstFailureIsKept) {
  StepLanes lanes(kClock);
  bool ran = false;
  lanes.Issue(MakeStep(0, StepKind::kReadKv), [] { return absl::DataLossError("lost"); });
  lanes.Issue(MakeStep(1, StepKind::kUploadKv, {0}), [&] {
    ran = true;
    return absl::OkStatus();
  });
  const Step computation = MakeStep(2, StepKind::kCompute, {1});
  lanes.Begin(computation);
  lanes.End(computation, lanes.failure()->status);
  EXPECT_FALSE(ran);
  ASSERT_TRUE(lanes.failure().has_value());
  EXPECT_THAT(lanes.failure()->status, StatusIs(absl::StatusCode::kDataLoss, "lost"));
  lanes.EndSweep();
}

// A write that nobody waits for fails the sweep all the same.
TEST(StepLanesTest, TheEndOfASweepFindsFailuresThatNoComputationWaitedFor) {
  StepLanes lanes(kClock);
  lanes.Issue(MakeStep(0, StepKind::kWriteKv), [] { return absl::DataLossError("no space"); });
  lanes.EndSweep();
  ASSERT_TRUE(lanes.failure().has_value());
  EXPECT_EQ(lanes.failure()->step.kind, StepKind::kWriteKv);
}

// Reading ahead for the next sweep is not waited for at the end of one.
TEST(StepLanesTest, TransfersOfWeightsGoOnAcrossTheEndOfASweep) {
  StepLanes lanes(kClock);
  Fence* transfer = nullptr;
  Fence begun;
  lanes.IssueTransfer(MakeStep(0, StepKind::kReadWeights), [&](Fence* done) {
    transfer = done;
    begun.Complete(absl::OkStatus());
  });
  EXPECT_OK(begun.Wait());
  EXPECT_TRUE(lanes.EndSweep().empty());
  std::thread disk([&] { transfer->Complete(absl::OkStatus()); });
  const Step computation = MakeStep(1, StepKind::kCompute, {0});
  lanes.Begin(computation);
  lanes.End(computation, absl::OkStatus());
  disk.join();
  EXPECT_EQ(lanes.EndSweep().size(), 2U);
}

TEST(StepLanesTest, WhatAComputationWaitedForIsInItsTimes) {
  StepLanes lanes(kClock);
  Fence gate;
  lanes.Issue(MakeStep(0, StepKind::kReadActivations), [&] { return gate.Wait(); });
  std::thread opener([&] { gate.Complete(absl::OkStatus()); });
  const Step computation = MakeStep(1, StepKind::kCompute, {0});
  lanes.Begin(computation);
  lanes.End(computation, absl::OkStatus());
  opener.join();
  const std::vector<StepTimes> times = lanes.EndSweep();
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].lane, LaneId::kRead);
  EXPECT_GE(times[0].start_us, times[0].issue_us);
  EXPECT_GE(times[0].end_us, times[0].start_us);
  EXPECT_GE(times[1].start_us, times[0].end_us);
}

TEST(StepLanesTest, ComputingBetweenPiecesOfACallIsTheLaterPieces) {
  StepLanes lanes(kClock);
  const Step first = MakeStep(0, StepKind::kCompute);
  lanes.Begin(first);
  lanes.End(first, absl::OkStatus());
  const int64_t ended_us = kClock.MonotonicMicros();
  while (kClock.MonotonicMicros() < ended_us + 1000) {
  }
  const int64_t begun_us = kClock.MonotonicMicros();
  Step last = MakeStep(1, StepKind::kCompute);
  last.is_last_piece = true;
  lanes.Begin(last);
  lanes.End(last, absl::OkStatus());
  const Step next_call = MakeStep(2, StepKind::kCompute);
  lanes.Begin(next_call);
  lanes.End(next_call, absl::OkStatus());
  const std::vector<StepTimes> times = lanes.EndSweep();
  ASSERT_EQ(times.size(), 3U);
  EXPECT_LT(times[1].start_us, begun_us);
  EXPECT_GE(times[1].start_us, times[0].end_us);
  EXPECT_EQ(times[2].start_us, times[2].issue_us);
}

}  // namespace
}  // namespace nightshift
