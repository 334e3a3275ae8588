#include "engine/policy/nightshift_cost.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/known_shapes.h"
#include "engine/model/shape_manifest.h"
#include "engine/policy/engine_policy.h"
#include "engine/policy/sweep_simulation.h"
#include "tests/support/plain_machines.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

NightshiftModel Model(const std::string& name, DType weights = DType::kBF16) {
  NightshiftModel model{.name = name, .forms = {}};
  model.forms[weights] = ManifestOf(FindKnownShape(name).value(), weights);
  return model;
}

WorkloadProfile Workload(int64_t prompt_tokens, int64_t output_tokens, int64_t requests) {
  WorkloadProfile workload;
  workload.classes = {
      {.prompt_tokens = prompt_tokens, .output_tokens = output_tokens, .requests = requests}};
  return workload;
}

// Outputs of very different lengths.
WorkloadProfile Skewed(int64_t prompt_tokens, int64_t most_output_tokens, int64_t requests) {
  WorkloadProfile workload;
  for (int64_t i = 1; i <= 8; ++i) {
    workload.classes.push_back({.prompt_tokens = prompt_tokens,
                                .output_tokens = most_output_tokens * i / 8,
                                .requests = requests / 8});
  }
  return workload;
}

struct Case {
  std::string name;
  std::string model;
  DType weights = DType::kBF16;
  HardwareProfile hardware;
  WorkloadProfile workload;
  BlockChoice choice;
  Shares shares;
  double tolerance = 0.05;  // of the formula, as a part of the simulation
};

// Where a batch has more to bring than to compute and the next one the other way round, whole
// prompts are too coarse to even it out: the formula, which sees their sum, is too fast.
constexpr double kUnevenBatches = 0.1;

constexpr Shares kInMemory = {1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0};
constexpr Shares kHalfOnDisk = {0.5, 0.0, 0.5, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0};
constexpr Shares kOnDisk = {0.15, 0.0, 0.85, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0};
constexpr Shares kOnHost = {0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0};
constexpr Shares kWeightsOnHost = {0.2, 0.8, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0};
constexpr Shares kAllTiers = {0.1, 0.4, 0.5, 0.1, 0.5, 0.4, 0.0, 1.0, 0.0};

BlockChoice Block(int64_t block, int64_t batch, int64_t chunk = 0, bool host_attention = false) {
  return {.block_requests = block,
          .batch_requests = batch,
          .chunk_tokens = chunk,
          .host_attention = host_attention};
}

std::vector<Case> Cases() {
  const HardwareProfile box = PlainBox();
  HardwareProfile slow_disk = PlainBox();
  slow_disk.disk_read.points[0].rate = 0.4e9;
  const HardwareProfile gpu = PlainGpuHost();
  const DType bf16 = DType::kBF16;
  return {
      {"in memory", "1b", bf16, box, Workload(256, 32, 1000), Block(64, 64), kInMemory},
      {"in memory, skewed", "1b", bf16, box, Skewed(64, 256, 2000), Block(64, 64), kInMemory},
      {"half on disk", "1b", bf16, box, Workload(256, 32, 1000), Block(64, 64), kHalfOnDisk},
      {"on disk", "1b", bf16, box, Workload(256, 32, 1000), Block(64, 64), kOnDisk},
      {"on disk, few", "1b", bf16, slow_disk, Workload(256, 32, 20), Block(64, 64), kOnDisk},
      {"on disk, slow", "1b", bf16, slow_disk, Workload(32, 128, 1000), Block(64, 64), kOnDisk,
       0.08},
      {"on disk, skewed", "7b", bf16, slow_disk, Skewed(128, 400, 4000), Block(128, 128), kOnDisk},
      {"classification", "7b", bf16, box, Workload(900, 4, 5000), Block(32, 32), kOnDisk},
      {"chunks", "7b", bf16, box, Workload(2000, 50, 5000), Block(32, 32, 256), kHalfOnDisk},
      {"batches", "7b", bf16, box, Workload(256, 50, 5000), Block(128, 32), kOnDisk},
      {"4 bit", "7b", DType::kU4G64, box, Workload(256, 50, 5000), Block(64, 64), kOnDisk},
      {"long outputs", "1b", bf16, box, Workload(64, 1000, 500), Block(64, 64), kOnDisk},
      {"gpu, weights on host", "opt-13b", bf16, gpu, Workload(256, 50, 5000), Block(32, 32),
       kWeightsOnHost},
      {"gpu, all on host", "opt-30b", bf16, gpu, Workload(512, 32, 5000), Block(64, 16), kOnHost},
      {"gpu, delegated", "opt-30b", bf16, gpu, Workload(512, 32, 5000), Block(128, 32, 0, true),
       kOnHost},
      {"gpu, all tiers", "opt-30b", bf16, gpu, Workload(512, 32, 5000), Block(64, 16), kAllTiers},
      {"gpu, 4 bit", "opt-30b", DType::kU4G64, gpu, Workload(512, 32, 5000), Block(64, 16), kOnHost,
       kUnevenBatches},
      {"experts", "qwen3-30b-a3b", bf16, box, Workload(256, 50, 1000), Block(64, 64), kOnDisk},
  };
}

TierBudgets BudgetsOf(const HardwareProfile& hardware) {
  return {.device = hardware.unified_memory ? 0 : hardware.device_bytes,
          .host = hardware.host_bytes,
          .disk = hardware.disk_bytes};
}

// Both forms of the same thing.
TEST(NightshiftCostTest, AgreesWithTheScheduleRunInVirtualTime) {
  for (const Case& one : Cases()) {
    const NightshiftModel model = Model(one.model, one.weights);
    const auto cost = NightshiftCost::Create(model, ComputeType::kBF16, one.hardware, one.workload);
    ASSERT_OK(cost);
    BlockChoice choice = one.choice;
    choice.weights = one.weights;
    ASSERT_OK_AND_ASSIGN(const PlacementProgram program, (*cost)->Program(choice));
    const double formula = TotalSeconds(program, one.shares);
    const EngineOptions options = OptionsFor({}, choice, one.shares, BudgetsOf(one.hardware),
                                             one.workload, (*cost)->LayerBytes(one.weights));
    const auto run = SimulateRun({.manifest = model.forms.at(one.weights),
                                  .name = one.model,
                                  .options = options,
                                  .hardware = one.hardware},
                                 one.workload);
    ASSERT_OK(run) << one.name;
    EXPECT_NEAR(formula / run->seconds, 1.0, one.tolerance)
        << one.name << ": " << formula << " and " << run->seconds << " s";
  }
}

// With the memory that the rows ask for, and a little for what whole pages and shards take more,
// the engine's own plan holds the whole block.
TEST(NightshiftCostTest, WhatFitsTheRowsFitsThePools) {
  for (const Case& one : Cases()) {
    const NightshiftModel model = Model(one.model, one.weights);
    const auto cost = NightshiftCost::Create(model, ComputeType::kBF16, one.hardware, one.workload);
    ASSERT_OK(cost);
    BlockChoice choice = one.choice;
    choice.weights = one.weights;
    ASSERT_OK_AND_ASSIGN(const PlacementProgram program, (*cost)->Program(choice));
    TierBudgets budgets = BudgetsOf(one.hardware);
    for (const CapacityRow& row : program.capacities) {
      const int64_t bytes = static_cast<int64_t>(1.03 * row.bytes.At(one.shares));
      (row.tier == Tier::kDisk                                     ? budgets.disk
       : row.tier == Tier::kDevice && !one.hardware.unified_memory ? budgets.device
                                                                   : budgets.host) = bytes;
    }
    const EngineOptions options =
        OptionsFor({}, choice, one.shares, budgets, one.workload, (*cost)->LayerBytes(one.weights));
    const auto run = SimulateRun({.manifest = model.forms.at(one.weights),
                                  .name = one.model,
                                  .options = options,
                                  .hardware = one.hardware},
                                 one.workload);
    ASSERT_OK(run) << one.name;
    EXPECT_EQ(run->evictions, 0) << one.name;
    const double formula = TotalSeconds(program, one.shares);
    // A block that is not full is slower.
    EXPECT_LE(run->seconds, 1.05 / (1 - one.tolerance) * formula) << one.name;
  }
}

TEST(NightshiftCostTest, ABlockOfTwiceTheRequestsHalvesWhatIsRead) {
  const NightshiftModel model = Model("7b");
  HardwareProfile hardware = PlainBox();
  hardware.disk_read.points[0].rate = 0.1e9;
  const WorkloadProfile workload = Workload(256, 50, 100'000);
  const auto cost = NightshiftCost::Create(model, ComputeType::kBF16, hardware, workload);
  ASSERT_OK(cost);
  ASSERT_OK_AND_ASSIGN(const PlacementProgram small, (*cost)->Program(Block(16, 16)));
  ASSERT_OK_AND_ASSIGN(const PlacementProgram large, (*cost)->Program(Block(32, 32)));
  EXPECT_NEAR(TotalSeconds(large, kOnDisk) / TotalSeconds(small, kOnDisk), 0.5, 0.02);
}

TEST(NightshiftCostTest, AJobSmallerThanABlockTakesNoMoreThanItsOwnMemory) {
  const NightshiftModel model = Model("1b");
  const HardwareProfile hardware = PlainBox();
  const auto rows = [&](int64_t requests) {
    const WorkloadProfile workload = Workload(256, 50, requests);
    const auto cost = NightshiftCost::Create(model, ComputeType::kBF16, hardware, workload);
    EXPECT_OK(cost);
    return (*cost)->Program(Block(256, 256))->capacities[0].bytes[ShareId::kKvDevice];
  };
  EXPECT_NEAR(rows(4) / rows(256), 4.0 / 256.0, 0.001);
  EXPECT_DOUBLE_EQ(rows(256), rows(100'000));
}

TEST(NightshiftCostTest, CompressedKeysAndValuesTakeLessRoomAndTheirUnpacking) {
  const NightshiftModel model = Model("opt-30b");
  const HardwareProfile hardware = PlainGpuHost();
  const WorkloadProfile workload = Workload(512, 32, 5000);
  const auto cost = NightshiftCost::Create(model, ComputeType::kBF16, hardware, workload);
  ASSERT_OK(cost);
  BlockChoice choice = Block(64, 16);
  ASSERT_OK_AND_ASSIGN(const PlacementProgram plain, (*cost)->Program(choice));
  choice.kv = DType::kU4G64;
  ASSERT_OK_AND_ASSIGN(const PlacementProgram packed, (*cost)->Program(choice));
  const auto on_host = [](const PlacementProgram& program) {
    return program.capacities[1].bytes[ShareId::kKvHost];
  };
  EXPECT_NEAR(on_host(packed) / on_host(plain), 4.5 / 16.0, 0.02);
  const auto compute = [](const PlacementProgram& program) {
    return program.phases[0].overlapped[0].seconds.At(kInMemory);
  };
  EXPECT_GT(compute(packed), compute(plain));
}

TEST(NightshiftCostTest, OneMemoryHasNoHostOfItsOwn) {
  const NightshiftModel model = Model("1b");
  const HardwareProfile hardware = PlainBox();
  const auto cost =
      NightshiftCost::Create(model, ComputeType::kBF16, hardware, Workload(256, 50, 100));
  ASSERT_OK(cost);
  ASSERT_OK_AND_ASSIGN(const PlacementProgram program, (*cost)->Program(Block(8, 8)));
  EXPECT_EQ(program.fixed[static_cast<size_t>(ShareId::kWeightsHost)], 0.0);
  EXPECT_EQ(program.fixed[static_cast<size_t>(ShareId::kKvHost)], 0.0);
  EXPECT_FALSE(program.fixed[static_cast<size_t>(ShareId::kWeightsDisk)].has_value());
  EXPECT_EQ(program.capacities.size(), 2U);  // memory and disk
}

TEST(NightshiftCostTest, EveryKnownShapeGivesAProgramWithoutNegativeNumbers) {
  const HardwareProfile gpu = PlainGpuHost();
  for (const std::string& name : KnownShapeNames()) {
    const NightshiftModel model = Model(name);
    for (const WorkloadProfile& workload :
         {Workload(100, 0, 5), Workload(1, 1, 1), Workload(500, 100, 1'000'000)}) {
      const auto cost = NightshiftCost::Create(model, ComputeType::kBF16, gpu, workload);
      ASSERT_OK(cost);
      const auto program = (*cost)->Program(Block(5, 2, 64, true));
      ASSERT_OK(program) << name;
      EXPECT_OK(ValidateProgram(*program)) << name;
      EXPECT_GT(TotalSeconds(*program, kAllTiers), 0.0);
    }
  }
}

TEST(NightshiftCostTest, RefusesNonsense) {
  const NightshiftModel model = Model("tiny");
  const HardwareProfile hardware = PlainBox();
  EXPECT_THAT(NightshiftCost::Create({.name = "none", .forms = {}}, ComputeType::kBF16, hardware,
                                     Workload(1, 1, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, "none has no form"));
  EXPECT_THAT(NightshiftCost::Create(model, ComputeType::kBF16, hardware, Workload(100'000, 1, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, "context"));
  HardwareProfile nothing = hardware;
  nothing.disk_read.points.clear();
  EXPECT_THAT(NightshiftCost::Create(model, ComputeType::kBF16, nothing, Workload(1, 1, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, "disk_read"));
  const auto cost =
      NightshiftCost::Create(model, ComputeType::kBF16, hardware, Workload(10, 10, 10));
  ASSERT_OK(cost);
  for (const BlockChoice& choice :
       {Block(0, 1), Block(1, 2), Block(4, 0), Block(4, 4, -1), Block(int64_t{1} << 60, 1)}) {
    EXPECT_THAT((*cost)->Program(choice), StatusIs(absl::StatusCode::kInvalidArgument, "a block"));
  }
  BlockChoice choice = Block(4, 4);
  choice.weights = DType::kU4G64;
  EXPECT_THAT((*cost)->Program(choice),
              StatusIs(absl::StatusCode::kInvalidArgument, "weights as U4G64"));
  choice.weights = DType::kBF16;
  for (const DType kv : {DType::kQ4K, DType::kF32, DType::kI8G32}) {
    choice.kv = kv;
    EXPECT_THAT((*cost)->Program(choice),
                StatusIs(absl::StatusCode::kInvalidArgument, "as U4G64 or as U8G64"));
  }
}

}  // namespace
}  // namespace nightshift
