#include "engine/policy/sweep_simulation.h"

#include <string>

#include <gtest/gtest.h>

#include "engine/model/known_shapes.h"
#include "engine/model/shape_manifest.h"
#include "tests/support/plain_machines.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

class SweepSimulationTest : public testing::Test {
 protected:
  SweepSimulationTest() {
    UseModel("1b");
    options_.memory_budget_bytes = 16 * kGiB;
    options_.max_block_requests = 64;
    workload_.classes = {{.prompt_tokens = 256, .output_tokens = 32, .requests = 256}};
  }
  void UseModel(const std::string& name, DType weights = DType::kBF16) {
    manifest_ = ManifestOf(FindKnownShape(name).value(), weights);
  }
  // A device with memory of its own.
  void UseGpu() {
    hardware_ = PlainGpuHost();
    options_.tiers.device_budget_bytes = 8 * kGiB;
    options_.memory_budget_bytes = 64 * kGiB;
  }
  absl::StatusOr<SimulatedRun> Simulate() const {
    return SimulateRun(
        {.manifest = manifest_, .name = "model", .options = options_, .hardware = hardware_},
        workload_);
  }
  SimulatedRun Run() const {
    const auto run = Simulate();
    EXPECT_OK(run);
    return run.ok() ? *run : SimulatedRun();
  }
  static double Lane(const SimulatedRun& run, LaneId lane) {
    return run.lane_seconds[static_cast<size_t>(lane)];
  }

  PackManifest manifest_;
  EngineOptions options_;
  HardwareProfile hardware_ = PlainBox();
  WorkloadProfile workload_;
};

TEST_F(SweepSimulationTest, WhatLiesInMemoryTakesTheTimeOfItsArithmetic) {
  const SimulatedRun run = Run();
  EXPECT_EQ(run.bottleneck, LaneId::kCompute);
  EXPECT_TRUE(run.memory.weights.all_on_device());
  EXPECT_EQ(Lane(run, LaneId::kRead), 0.0);
  EXPECT_NEAR(run.seconds, Lane(run, LaneId::kCompute), 0.01 * run.seconds);
  // Matmuls alone, at the full rate, of all but the embedding.
  const double flops = 2.0 * 1.07e9 * 256 * (256 + 31);
  EXPECT_GT(run.seconds, flops / 1e12);
  EXPECT_LT(run.seconds, 2.0 * flops / 1e12);
}

TEST_F(SweepSimulationTest, WhatIsReadInEverySweepTakesTheDisksTime) {
  options_.weight_budget_bytes = 0;
  hardware_.disk_read.points[0].rate = 0.2e9;
  const SimulatedRun run = Run();
  EXPECT_EQ(run.bottleneck, LaneId::kRead);
  const double bytes = static_cast<double>(run.memory.weights.streamed_disk_bytes);
  EXPECT_NEAR(Lane(run, LaneId::kRead), static_cast<double>(run.simulated_sweeps) * bytes / 0.2e9,
              0.01 * Lane(run, LaneId::kRead));
  EXPECT_GE(run.seconds, Lane(run, LaneId::kRead));
  EXPECT_LE(run.seconds, 1.1 * Lane(run, LaneId::kRead));
}

TEST_F(SweepSimulationTest, OneStepAfterTheOtherTakesTheSumOfTheLanes) {
  options_.weight_budget_bytes = 0;
  options_.tiers.overlap = false;
  const SimulatedRun run = Run();
  const double sum = Lane(run, LaneId::kCompute) + Lane(run, LaneId::kRead);
  EXPECT_NEAR(run.seconds, sum, 0.02 * sum);
  options_.tiers.overlap = true;
  EXPECT_LT(Run().seconds, 0.9 * run.seconds);
}

TEST_F(SweepSimulationTest, ALongJobIsALongerOneOfTheSameRate) {
  workload_.classes = {{.prompt_tokens = 256, .output_tokens = 8, .requests = 300},
                       {.prompt_tokens = 100, .output_tokens = 60, .requests = 300}};
  const SimulatedRun shorter = Run();
  for (WorkloadClass& one : workload_.classes) {
    one.requests *= 100;
  }
  const SimulatedRun longer = Run();
  EXPECT_LT(longer.simulated_requests, 1000);
  EXPECT_NEAR(longer.seconds, 100.0 * shorter.seconds, 0.05 * longer.seconds);
}

// Sweeps that are much alike stand for each other; here each one is run by itself.
TEST_F(SweepSimulationTest, TheSameArgumentsGiveTheSameSeconds) {
  EXPECT_EQ(Run().seconds, Run().seconds);
}

TEST_F(SweepSimulationTest, SharedBeginningsSaveTheirArithmetic) {
  const double alone = Run().seconds;
  workload_.shared_prefix_tokens = 192;
  EXPECT_LT(Run().seconds, 0.6 * alone);
}

TEST_F(SweepSimulationTest, LinksOfADeviceAreLanes) {
  UseGpu();
  options_.tiers.weights = {0.0, 1.0};
  options_.tiers.kv = {0.0, 1.0};
  hardware_.upload.points[0].rate = 1e9;
  const SimulatedRun run = Run();
  EXPECT_EQ(run.bottleneck, LaneId::kUpload);
  EXPECT_GT(Lane(run, LaneId::kDownload), 0.0);
  EXPECT_EQ(Lane(run, LaneId::kRead), 0.0);
  // Attention by the host leaves its keys and values where they are.
  options_.tiers.host_attention = true;
  options_.tiers.buffering = WeightBuffering::kTwoLayers;
  const SimulatedRun delegated = Run();
  EXPECT_GT(Lane(delegated, LaneId::kHostAttention), 0.0);
  EXPECT_LT(Lane(delegated, LaneId::kUpload), Lane(run, LaneId::kUpload));
}

TEST_F(SweepSimulationTest, SparseAttentionReadsAllKeysAndFewValues) {
  UseGpu();
  options_.tiers.kv = {0.0, 1.0};
  options_.tiers.host_attention = true;
  const double dense = Lane(Run(), LaneId::kHostAttention);
  EXPECT_GT(dense, 0.0);
  options_.sparse_attention = 0.1;
  const double sparse = Lane(Run(), LaneId::kHostAttention);
  EXPECT_NEAR(sparse, (1.0 + 0.1) / 2.0 * dense, 0.02 * dense);
}

TEST_F(SweepSimulationTest, KeysAndRowsOnDiskPassThroughAllLanes) {
  UseGpu();
  options_.tiers.kv = {0.3, 0.3};
  options_.tiers.activations = {0.3, 0.3};
  options_.tiers.disk_budget_bytes = 64 * kGiB;
  const SimulatedRun run = Run();
  for (const LaneId lane :
       {LaneId::kRead, LaneId::kUpload, LaneId::kCompute, LaneId::kDownload, LaneId::kWrite}) {
    EXPECT_GT(Lane(run, lane), 0.0) << LaneName(lane);
  }
  EXPECT_GT(run.most_pages.disk, 0);
}

TEST_F(SweepSimulationTest, EverySchedulesJobEnds) {
  options_.weight_budget_bytes = 0;
  const double rolling = Run().seconds;
  options_.tiers.schedule = ScheduleKind::kZigzag;
  options_.tiers.buffering = WeightBuffering::kTwoLayers;
  EXPECT_GT(Run().seconds, 0.9 * rolling);
  options_.tiers.schedule = ScheduleKind::kRow;
  EXPECT_GT(Run().seconds, 0.9 * rolling);
}

TEST_F(SweepSimulationTest, CompressedWeightsAreReadFasterAndUnpacked) {
  options_.weight_budget_bytes = 0;
  hardware_.disk_read.points[0].rate = 0.2e9;
  const double plain = Run().seconds;
  UseModel("1b", DType::kU4G64);
  const SimulatedRun compressed = Run();
  EXPECT_LT(compressed.seconds, 0.4 * plain);
  const double compute = Lane(compressed, LaneId::kCompute);
  hardware_.device.unpack[0].elements_per_s *= 1000.0;
  EXPECT_LT(Lane(Run(), LaneId::kCompute), compute);
}

TEST_F(SweepSimulationTest, ExpertsThatNoRowChoosesAreNotRead) {
  UseModel("qwen3-30b-a3b");
  options_.weight_budget_bytes = 0;
  workload_.classes = {{.prompt_tokens = 2, .output_tokens = 16, .requests = 1}};
  const SimulatedRun one = Run();
  // 8 of 128 experts a layer, and what is not experts.
  const double bytes = static_cast<double>(manifest_.extent_bytes);
  EXPECT_LT(one.seconds, static_cast<double>(one.simulated_sweeps) * 0.25 * bytes / 2e9);
  workload_.classes[0].requests = 64;
  EXPECT_GT(Run().seconds, 2.0 * one.seconds);
}

TEST_F(SweepSimulationTest, AModelOfAHundredThousandShardsIsSimulatedToo) {
  UseModel("opt-175b");
  UseGpu();
  options_.tiers.device_budget_bytes = 15 * kGiB;
  options_.memory_budget_bytes = 200 * kGiB;
  options_.tiers.weights = {0.0, 0.5};
  options_.tiers.kv = {0.0, 1.0};
  options_.max_block_requests = 16;
  options_.max_sweep_tokens = 1024;
  workload_.classes = {{.prompt_tokens = 512, .output_tokens = 32, .requests = 10'000}};
  const SimulatedRun run = Run();
  EXPECT_EQ(run.bottleneck, LaneId::kRead);
  EXPECT_GT(run.output_tokens_per_s, 0.01);
}

TEST_F(SweepSimulationTest, RefusesWhatMakesNoSense) {
  options_.memory_budget_bytes = 4;
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kResourceExhausted, "budget of 4 bytes"));
  options_.memory_budget_bytes = 0;
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kInvalidArgument, "memory_budget_bytes"));
  options_.memory_budget_bytes = 16 * kGiB;
  workload_.classes[0].prompt_tokens = 5000;
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kInvalidArgument, "context"));
  workload_.classes.clear();
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kInvalidArgument, "no requests"));
  workload_.classes = {{.prompt_tokens = 1, .output_tokens = 1, .requests = 1}};
  EXPECT_OK(Simulate());
  hardware_ = PlainGpuHost();
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kInvalidArgument, "one memory"));
}

TEST_F(SweepSimulationTest, RefusesBlocksAndTimesBeyondItsBounds) {
  options_.memory_budget_bytes = int64_t{1} << 50;
  options_.max_block_requests = int64_t{1} << 31;
  options_.max_sweep_tokens = int64_t{1} << 31;
  workload_.classes = {{.prompt_tokens = 1, .output_tokens = 1, .requests = int64_t{1} << 31}};
  EXPECT_THAT(Simulate(),
              StatusIs(absl::StatusCode::kInvalidArgument, "at most 2097152 such requests"));
  workload_.classes = {{.prompt_tokens = 1, .output_tokens = 1000, .requests = 200'000}};
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kInvalidArgument, "at most 99900 such"));
  workload_.classes = {{.prompt_tokens = 8, .output_tokens = 1, .requests = 8}};
  EXPECT_OK(Simulate());
  for (MatmulRate& rate : hardware_.device.matmul) {
    rate.flops.points = {{.size = 1.0, .rate = 1.0}};
  }
  EXPECT_THAT(Simulate(), StatusIs(absl::StatusCode::kInvalidArgument, "at most 1e+09 s"));
}

}  // namespace
}  // namespace nightshift
