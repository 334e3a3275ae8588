#include "engine/policy/request_flow.h"

#include <gtest/gtest.h>

#include "engine/model/known_shapes.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

class RequestFlowTest : public testing::Test {
 protected:
  RequestFlowTest() : config_(FindKnownShape("tiny").value().config), layers_(config_) {
    options_.max_block_requests = 4;
    options_.limits = {.max_sweep_tokens = 256, .prompt_chunk_tokens = 64, .max_batch_tokens = 256};
    options_.pages = {.device = 1000};
    options_.requests = 10;
    workload_.classes = {{.prompt_tokens = 100, .output_tokens = 5, .requests = 10}};
  }

  struct Totals {
    int64_t sweeps = 0;
    int64_t rows = 0;
    int64_t most_rows = 0;
    int64_t finished = 0;
    int64_t evictions = 0;
    KvPages most_pages;
  };
  Totals Run() {
    auto flow = RequestFlow::Create(workload_, options_, layers_);
    EXPECT_OK(flow);
    Totals totals;
    while (flow.ok()) {
      const std::optional<SweepSchedule> schedule = flow->Begin();
      if (!schedule.has_value()) {
        break;
      }
      ++totals.sweeps;
      totals.rows += schedule->num_rows;
      totals.most_rows = std::max(totals.most_rows, schedule->num_rows);
      flow->End(*schedule);
    }
    totals.finished = flow->num_finished();
    totals.evictions = flow->num_evictions();
    totals.most_pages = flow->most_pages();
    return totals;
  }

  const ModelConfig config_;
  const KvLayers layers_;
  FlowOptions options_;
  WorkloadProfile workload_;
};

TEST_F(RequestFlowTest, EveryTokenButTheLastOfEachRequestIsComputedOnce) {
  const Totals totals = Run();
  EXPECT_EQ(totals.finished, 10);
  EXPECT_EQ(totals.rows, 10 * (100 + 5 - 1));
  EXPECT_EQ(totals.evictions, 0);
  EXPECT_LE(totals.most_pages.device, 4 * PagesFor(104));
}

TEST_F(RequestFlowTest, OneRequestTakesItsChunksAndThenASweepAToken) {
  options_.requests = 1;
  EXPECT_EQ(Run().sweeps, 2 + 4);
  workload_.classes[0].output_tokens = 0;
  EXPECT_EQ(Run().sweeps, 2);
}

TEST_F(RequestFlowTest, RollingFillsPlacesThatAClosedBlockLeavesEmpty) {
  workload_.classes = {{.prompt_tokens = 10, .output_tokens = 2, .requests = 5},
                       {.prompt_tokens = 10, .output_tokens = 20, .requests = 5}};
  const int64_t rolling = Run().sweeps;
  options_.schedule = ScheduleKind::kZigzag;
  const Totals closed = Run();
  EXPECT_EQ(closed.finished, 10);
  EXPECT_LT(rolling, closed.sweeps);
}

TEST_F(RequestFlowTest, WhatAllPromptsShareIsComputedOnceAndHeldOnce) {
  workload_.shared_prefix_tokens = 70;  // two stretches of 32
  const Totals totals = Run();
  EXPECT_EQ(totals.finished, 10);
  EXPECT_EQ(totals.rows, 10 * (100 + 5 - 1) - 9 * 64);
  EXPECT_LE(totals.most_pages.device, 2 + 4 * 2);
}

TEST_F(RequestFlowTest, TheYoungestGoesWhenPagesRunOutAndComesAgain) {
  workload_.classes = {{.prompt_tokens = 32, .output_tokens = 600, .requests = 10}};
  options_.pages = {.device = 24};  // admission counts 128 tokens ahead
  const Totals totals = Run();
  EXPECT_EQ(totals.finished, 10);
  EXPECT_GT(totals.evictions, 0);
  EXPECT_LE(totals.most_pages.device, 24);
}

TEST_F(RequestFlowTest, PagesComeFromTheEmptiestTier) {
  options_.pages = {.device = 8, .host = 8, .disk = 8};
  const Totals totals = Run();
  EXPECT_EQ(totals.finished, 10);
  EXPECT_GT(totals.most_pages.host, 0);
  EXPECT_GT(totals.most_pages.disk, 0);
}

TEST_F(RequestFlowTest, ARequestThatNeverFitsIsRefusedWithNumbers) {
  options_.pages = {.device = 3};
  EXPECT_THAT(RequestFlow::Create(workload_, options_, layers_),
              StatusIs(absl::StatusCode::kResourceExhausted, "takes 4 kv pages"));
}

}  // namespace
}  // namespace nightshift
