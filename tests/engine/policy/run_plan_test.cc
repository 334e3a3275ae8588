#include "engine/policy/run_plan.h"

#include <algorithm>
#include <array>
#include <memory>

#include <gtest/gtest.h>

#include "engine/model/known_shapes.h"
#include "engine/model/shape_manifest.h"
#include "engine/policy/sweep_prediction.h"
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

// Where pages bind, packed ones hold a larger block; where nothing binds they are not worth a bit.
TEST_F(RunPlanTest, PacksKeysAndValuesWhereThatIsFasterAndAllowed) {
  HardwareProfile machine = hardware_;
  for (const DType kv : {DType::kU8G64, DType::kU4G64}) {
    machine.device.decode_attention.push_back(
        {.kv = kv, .head_width = 128, .bytes = {{{.size = 512, .rate = 15e9}}}});
  }
  workload_.classes = {{.prompt_tokens = 1500, .output_tokens = 32, .requests = 1000}};
  longest_ = 1532;
  const auto plan = [&](std::vector<DType> kv_types) {
    RunRequest request{.manifest = manifest_,
                       .name = "1b",
                       .base = base_,
                       .fixed = fixed_,
                       .kv_types = std::move(kv_types),
                       .hardware = machine,
                       .workload = workload_,
                       .longest_request_tokens = longest_};
    return PlanRun(request);
  };
  const std::vector<DType> all = {DType::kBF16, DType::kU8G64, DType::kU4G64};
  ASSERT_OK_AND_ASSIGN(const RunPlan plain, plan({}));
  EXPECT_FALSE(plain.options.kv_type.has_value());
  ASSERT_OK_AND_ASSIGN(const RunPlan packed, plan(all));
  EXPECT_EQ(packed.options.kv_type, DType::kU4G64);
  EXPECT_LT(packed.predicted.seconds, plain.predicted.seconds);
  // The base's own type holds where no other is allowed.
  base_.kv_type = DType::kU8G64;
  ASSERT_OK_AND_ASSIGN(const RunPlan kept, plan({}));
  EXPECT_EQ(kept.options.kv_type, DType::kU8G64);
  // Memory for everything, short contexts, and packed keys that are slow to read.
  base_.kv_type.reset();
  base_.memory_budget_bytes = 32 * kGiB;
  workload_.classes = {{.prompt_tokens = 256, .output_tokens = 8, .requests = 64}};
  for (DecodeAttentionRate& rate : machine.device.decode_attention) {
    if (rate.kv) rate.bytes.points[0].rate = 1e9;
  }
  ASSERT_OK_AND_ASSIGN(const RunPlan roomy, plan(all));
  EXPECT_FALSE(roomy.options.kv_type.has_value());
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

double Of(const LaneSeconds& lanes, LaneId lane) {
  return lanes[static_cast<size_t>(lane)];
}

// The box with all that computes `factor` times as fast.
HardwareProfile ComputingFaster(HardwareProfile profile, double factor) {
  ComputeRates& rates = profile.device;
  const auto speed_up = [&](RateCurve& curve) {
    for (RatePoint& point : curve.points) {
      point.rate *= factor;
    }
  };
  for (MatmulRate& rate : rates.matmul) {
    speed_up(rate.flops);
  }
  for (PromptAttentionRate& rate : rates.prompt_attention) {
    speed_up(rate.flops);
  }
  for (DecodeAttentionRate& rate : rates.decode_attention) {
    speed_up(rate.bytes);
  }
  for (UnpackRate& rate : rates.unpack) {
    rate.elements_per_s *= factor;
  }
  rates.row_bytes_per_s *= factor;
  rates.memory_bytes_per_s *= factor;
  rates.step_seconds /= factor;
  return profile;
}

class SweepPredictorTest : public RunPlanTest {
 protected:
  SweepPredictorTest() { base_.memory_budget_bytes = 8 * kGiB; }

  std::unique_ptr<SweepPredictor> Predictor(const HardwareProfile& hardware) const {
    auto predictor = SweepPredictor::Create(manifest_, "1b", base_, hardware);
    EXPECT_TRUE(predictor.ok()) << predictor.status();
    return *std::move(predictor);
  }
  // A sweep of a full block that decodes.
  std::vector<ComputedSpan> Decoding() const {
    return std::vector<ComputedSpan>(64, {.first_position = 300, .num_tokens = 1});
  }
};

TEST_F(SweepPredictorTest, SaysOfASweepWhatTheSimulationSaysOfIt) {
  for (const int64_t budget : {8 * kGiB, kGiB}) {  // in memory, and partly from disk
    base_.memory_budget_bytes = budget;
    workload_.classes = {{.prompt_tokens = 200, .output_tokens = 1, .requests = 1}};
    ASSERT_OK_AND_ASSIGN(const SimulatedRun run, PredictRun(Request(), base_));
    ASSERT_EQ(run.simulated_sweeps, 1);
    const auto predictor = Predictor(hardware_);
    const PredictedSweep sweep =
        predictor->Future(std::vector<ComputedSpan>{{.first_position = 0, .num_tokens = 200}}, 1);
    const LaneSeconds& lanes = sweep.lanes;
    EXPECT_NEAR(sweep.stretch * predictor->Bound(lanes), run.seconds, 1e-6 * run.seconds);
    for (const LaneId lane : {LaneId::kCompute, LaneId::kRead}) {
      EXPECT_NEAR(Of(lanes, lane), Of(run.lane_seconds, lane), 1e-9) << LaneName(lane);
    }
    EXPECT_EQ(Of(lanes, LaneId::kRead) > 0.0, budget == kGiB);
  }
}

TEST_F(SweepPredictorTest, TakesTransfersFromTheBytesOfTheSteps) {
  base_.memory_budget_bytes = kGiB;
  const std::vector<StepTimes> steps = {
      {.kind = StepKind::kReadWeights, .lane = LaneId::kRead, .bytes = 30'000'000},
      {.kind = StepKind::kReadWeights, .lane = LaneId::kRead, .bytes = 10'000'000},
      {.kind = StepKind::kWriteKv, .lane = LaneId::kWrite, .bytes = 5'000'000},
      {.kind = StepKind::kCompute, .lane = LaneId::kCompute}};
  const LaneSeconds lanes = Predictor(hardware_)->Past(Decoding(), 64, steps).lanes;
  EXPECT_NEAR(Of(lanes, LaneId::kRead), 0.02, 1e-9);  // 2 GB/s
  EXPECT_NEAR(Of(lanes, LaneId::kWrite), 0.005, 1e-9);
  EXPECT_GT(Of(lanes, LaneId::kCompute), 0.0);
}

TEST_F(SweepPredictorTest, HasNothingToSayOfASweepWithoutSpans) {
  EXPECT_EQ(Predictor(hardware_)->Past({}, 0, {}).lanes, LaneSeconds());
}

// What a daemon does: sweeps of the true machine, predicted by rates that are twice as high.
TEST_F(SweepPredictorTest, ARateThatIsWrongByTwoIsRightAfterSomeSweeps) {
  HardwareProfile wrong = ComputingFaster(hardware_, 2.0);
  const auto by_truth = Predictor(hardware_);
  const auto by_wrong = Predictor(wrong);
  ASSERT_OK_AND_ASSIGN(const SimulatedRun truth, PredictRun(Request(), base_));
  for (int sweep = 0; sweep < 40; ++sweep) {
    // Every fifth sweep is disturbed.
    const double noise = sweep % 5 == 4 ? 7.0 : 1.0;
    for (const LaneId lane : {LaneId::kCompute, LaneId::kRead}) {
      wrong.refinement.Observe(lane, Of(by_wrong->Future(Decoding(), 64).lanes, lane),
                               noise * Of(by_truth->Future(Decoding(), 64).lanes, lane));
    }
  }
  RunRequest request{.manifest = manifest_,
                     .name = "1b",
                     .base = base_,
                     .fixed = fixed_,
                     .hardware = wrong,
                     .workload = workload_,
                     .longest_request_tokens = longest_};
  ASSERT_OK_AND_ASSIGN(const SimulatedRun refined, PredictRun(request, base_));
  EXPECT_NEAR(refined.seconds / truth.seconds, 1.0, 0.01);
  // The rates themselves are as measured, and the same inputs give the same plan.
  EXPECT_EQ(wrong.device.step_seconds, hardware_.device.step_seconds / 2.0);
  ASSERT_OK_AND_ASSIGN(const RunPlan one, PlanRun(request));
  ASSERT_OK_AND_ASSIGN(const RunPlan two, PlanRun(request));
  EXPECT_EQ(PlanJson(one.plan), PlanJson(two.plan));
}

TEST_F(SweepPredictorTest, ARateThatIsFarOffIsNeverCorrectedBeyondTheBounds) {
  HardwareProfile wrong = ComputingFaster(hardware_, 10.0);
  ASSERT_OK_AND_ASSIGN(const SimulatedRun truth, PredictRun(Request(), base_));
  const double seconds = Of(Predictor(wrong)->Future(Decoding(), 64).lanes, LaneId::kCompute);
  for (int sweep = 0; sweep < 100; ++sweep) {
    wrong.refinement.Observe(LaneId::kCompute, seconds, 10.0 * seconds);
  }
  const RunRequest request{.manifest = manifest_,
                           .name = "1b",
                           .base = base_,
                           .fixed = fixed_,
                           .hardware = wrong,
                           .workload = workload_,
                           .longest_request_tokens = longest_};
  ASSERT_OK_AND_ASSIGN(const SimulatedRun refined, PredictRun(request, base_));
  EXPECT_NEAR(refined.seconds / truth.seconds, ProfileRefinement::kMostFactor / 10.0, 0.01);
}

}  // namespace
}  // namespace nightshift
