#include "engine/policy/workload_profile.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

WorkloadProfile Ragged(size_t count) {
  std::mt19937_64 random(3);
  WorkloadProfile workload;
  for (size_t i = 0; i < count; ++i) {
    workload.classes.push_back({.prompt_tokens = 1 + static_cast<int64_t>(random() % 2000),
                                .output_tokens = static_cast<int64_t>(random() % 500),
                                .requests = 1 + static_cast<int64_t>(random() % 9)});
  }
  return workload;
}

TEST(WorkloadProfileTest, MeansAreByRequestAndLeaveOutWhatIsShared) {
  WorkloadProfile workload;
  workload.classes = {{.prompt_tokens = 100, .output_tokens = 10, .requests = 3},
                      {.prompt_tokens = 500, .output_tokens = 30, .requests = 1}};
  workload.shared_prefix_tokens = 64;
  EXPECT_EQ(workload.requests(), 4);
  EXPECT_DOUBLE_EQ(workload.mean_prompt_tokens(), 200.0 - 64.0);
  EXPECT_DOUBLE_EQ(workload.mean_output_tokens(), 15.0);
}

TEST(WorkloadProfileTest, AnEmptyOneHasMeansOfNothing) {
  EXPECT_EQ(WorkloadProfile().requests(), 0);
  EXPECT_EQ(WorkloadProfile().mean_prompt_tokens(), 0.0);
  EXPECT_EQ(WorkloadProfile().mean_output_tokens(), 0.0);
}

TEST(WorkloadProfileTest, EqualLengthsBecomeOneClass) {
  WorkloadProfile workload;
  workload.classes.assign(1000, {.prompt_tokens = 7, .output_tokens = 2, .requests = 5});
  workload.Merge(10);
  ASSERT_EQ(workload.classes.size(), 1U);
  EXPECT_EQ(workload.classes[0].prompt_tokens, 7);
  EXPECT_EQ(workload.classes[0].requests, 5000);
}

TEST(WorkloadProfileTest, MergingKeepsCountsAndNearlyTheTokens) {
  for (const size_t most : {1U, 7U, 64U, 1000U}) {
    WorkloadProfile workload = Ragged(5000);
    const WorkloadProfile before = workload;
    workload.Merge(most);
    EXPECT_LE(workload.classes.size(), most);
    EXPECT_EQ(workload.requests(), before.requests());
    EXPECT_GE(workload.mean_prompt_tokens(), before.mean_prompt_tokens());
    EXPECT_LE(workload.mean_prompt_tokens(), before.mean_prompt_tokens() + 1.0);
    EXPECT_LE(workload.mean_output_tokens(), before.mean_output_tokens() + 1.0);
  }
}

TEST(WorkloadProfileTest, WhatIsSmallEnoughStaysAsItIs) {
  WorkloadProfile workload;
  workload.classes = {{.prompt_tokens = 8, .output_tokens = 1, .requests = 2},
                      {.prompt_tokens = 9, .output_tokens = 1, .requests = 3}};
  workload.Merge(2);
  EXPECT_EQ(workload.classes.size(), 2U);
}

TEST(WorkloadProfileTest, RefusesNonsenseByName) {
  const auto expect_refused = [](const WorkloadProfile& workload, const char* words) {
    EXPECT_THAT(workload.Validate(1000), StatusIs(absl::StatusCode::kInvalidArgument, words));
  };
  WorkloadProfile workload;
  expect_refused(workload, "no requests");
  workload.classes = {{.prompt_tokens = 100, .output_tokens = 900, .requests = 1}};
  EXPECT_OK(workload.Validate(1000));
  workload.classes[0].output_tokens = 901;
  expect_refused(workload, "context holds 1000");
  workload.classes[0].output_tokens = std::numeric_limits<int64_t>::max();
  expect_refused(workload, "context");
  workload.classes[0].output_tokens = -1;
  expect_refused(workload, "output");
  workload.classes[0] = {.prompt_tokens = 0, .output_tokens = 1, .requests = 1};
  expect_refused(workload, "prompt has 1 token");
  workload.classes[0] = {.prompt_tokens = 1, .output_tokens = 1, .requests = 0};
  expect_refused(workload, "number of requests");
  workload.classes[0].requests = std::numeric_limits<int64_t>::max();
  expect_refused(workload, "number of requests");
  workload.classes[0].requests = 1;
  workload.shared_prefix_tokens = 2;
  expect_refused(workload, "share");
  workload.shared_prefix_tokens = -2;
  expect_refused(workload, "share -2");
  workload.shared_prefix_tokens = 0;
  workload.deadline_seconds = std::numeric_limits<double>::quiet_NaN();
  expect_refused(workload, "deadline");
}

}  // namespace
}  // namespace nightshift
