#include "engine/policy/run_plan.h"

#include <gtest/gtest.h>

#include "engine/model/known_shapes.h"
#include "engine/model/shape_manifest.h"
#include "tests/support/plain_machines.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using absl::StatusCode;

constexpr int64_t kGiB = int64_t{1} << 30;

class RunPlanTest : public testing::Test {
 protected:
  RunPlanTest() {
    base_.pack_path = "pack";
    base_.memory_budget_bytes = kGiB;
    workload_.classes = {{.prompt_tokens = 256, .output_tokens = 32, .requests = 1000}};
  }
  RunRequest Request() const {
    return {.manifest = manifest_,
            .name = "1b",
            .base = base_,
            .fixed = fixed_,
            .hardware = hardware_,
            .workload = workload_,
            .longest_request_tokens = longest_};
  }

  const PackManifest manifest_ = ManifestOf(FindKnownShape("1b").value(), DType::kBF16);
  const HardwareProfile hardware_ = PlainBox();
  EngineOptions base_;
  FixedOptions fixed_;
  WorkloadProfile workload_;
  int64_t longest_ = 512;
};

TEST_F(RunPlanTest, IsNeverSlowerThanTheOptionsItBeginsWith) {
  for (const int64_t budget : {kGiB / 2, kGiB, 2 * kGiB, 8 * kGiB}) {
    for (const WorkloadClass& one :
         {WorkloadClass{512, 8, 2000}, WorkloadClass{32, 256, 2000}, WorkloadClass{100, 20, 7}}) {
      base_.memory_budget_bytes = budget;
      workload_.classes = {one};
      ASSERT_OK_AND_ASSIGN(const RunPlan plan, PlanRun(Request()));
      EXPECT_LE(plan.options.memory_budget_bytes, budget);
      const auto usual = PredictRun(Request(), base_);
      if (usual.ok()) {
        EXPECT_LE(plan.predicted.seconds, usual->seconds) << budget;
      }
    }
  }
}

// Few rows and a slow disk: a larger block, or less to read, is worth much.
TEST_F(RunPlanTest, BeatsOptionsThatHoldTooSmallABlock) {
  base_.max_block_requests = 4;
  ASSERT_OK_AND_ASSIGN(const RunPlan plan, PlanRun(Request()));
  EXPECT_FALSE(plan.is_default);
  ASSERT_OK_AND_ASSIGN(const SimulatedRun usual, PredictRun(Request(), base_));
  EXPECT_LT(2.0 * plan.predicted.seconds, usual.seconds);
  EXPECT_GT(plan.options.max_block_requests, 4);
}

TEST_F(RunPlanTest, KeepsWhatTheUserHasSet) {
  base_.max_block_requests = 24;
  base_.max_sweep_tokens = 300;
  base_.prompt_chunk_tokens = 100;
  base_.weight_budget_bytes = 0;
  fixed_ = {.max_block_requests = true,
            .max_sweep_tokens = true,
            .prompt_chunk_tokens = true,
            .weights = true};
  ASSERT_OK_AND_ASSIGN(const RunPlan plan, PlanRun(Request()));
  EXPECT_EQ(plan.options.max_block_requests, 24);
  EXPECT_EQ(plan.options.max_sweep_tokens, 300);
  EXPECT_EQ(plan.options.prompt_chunk_tokens, 100);
  EXPECT_EQ(plan.options.weight_budget_bytes, 0);
  EXPECT_FALSE(plan.options.tiers.weights.is_given());
}

TEST_F(RunPlanTest, SaysWhatIsLackingWhenNothingFits) {
  base_.memory_budget_bytes = 1 << 20;
  EXPECT_THAT(PlanRun(Request()), StatusIs(StatusCode::kResourceExhausted, "lacks"));
}

TEST_F(RunPlanTest, RefusesNonsense) {
  workload_.classes[0].prompt_tokens = 1'000'000;
  EXPECT_THAT(PlanRun(Request()), StatusIs(StatusCode::kInvalidArgument, ""));
  workload_.classes.clear();
  EXPECT_THAT(PlanRun(Request()), StatusIs(StatusCode::kInvalidArgument, ""));
}

TEST_F(RunPlanTest, IsTheSameEachTime) {
  ASSERT_OK_AND_ASSIGN(const RunPlan one, PlanRun(Request()));
  ASSERT_OK_AND_ASSIGN(const RunPlan two, PlanRun(Request()));
  EXPECT_EQ(PlanJson(one.plan), PlanJson(two.plan));
  EXPECT_EQ(one.predicted.seconds, two.predicted.seconds);
}

}  // namespace
}  // namespace nightshift
