#include "engine/memory_plan.h"

#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "engine/model/forward.h"
#include "engine/model/known_shapes.h"
#include "engine/model/shape_manifest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlanTest() : pack_(Pack::Open(TinyPack("llama")).value()) {
    options_.pack_path = pack_->path();
    options_.max_sweep_tokens = 64;
    options_.max_batch_tokens = 16;
    options_.max_block_requests = 8;
    options_.memory_budget_bytes = 64 * kMiB;
    options_.tiers.disk_budget_bytes = 64 * kMiB;
    options_.tiers.spill_folder = "/nowhere";
  }
  MemoryPlan Plan() const {
    auto plan = PlanMemory(options_, pack_->manifest(), pack_->path());
    EXPECT_OK(plan);
    return plan.ok() ? *plan : MemoryPlan();
  }

  std::unique_ptr<Pack> pack_;
  EngineOptions options_;
};

TEST_F(MemoryPlanTest, KeepsAllOnTheDeviceByDefault) {
  const MemoryPlan plan = Plan();
  EXPECT_TRUE(plan.weights.all_on_device());
  EXPECT_EQ(plan.kv_pages.host + plan.kv_pages.disk, 0);
  EXPECT_TRUE(plan.executor.activations.all_on_device());
  EXPECT_EQ(plan.executor.kv.pages_per_slot, 0);
  EXPECT_EQ(plan.executor.max_batch_tokens, 16);
}

TEST_F(MemoryPlanTest, KeepsToTheSharesThatAreGiven) {
  options_.tiers.device_budget_bytes = 64 * kMiB;
  options_.tiers.weights = {0.25, 0.5};
  options_.tiers.kv = {0.5, 0.25};
  options_.tiers.activations = {0.5, 0.25};
  const MemoryPlan plan = Plan();
  const double all = static_cast<double>(
      PlaceWeights(pack_->manifest(), options_.compute_type, {.device_bytes = INT64_MAX / 2})
          .device_bytes);
  EXPECT_NEAR(static_cast<double>(plan.weights.device_bytes) / all, 0.25, 0.1);
  EXPECT_NEAR(static_cast<double>(plan.weights.host_bytes) / all, 0.5, 0.1);
  EXPECT_GT(plan.weights.streamed_disk_bytes, 0);
  const double pages = static_cast<double>(plan.kv_pages.total());
  EXPECT_NEAR(static_cast<double>(plan.kv_pages.device) / pages, 0.5, 0.05);
  EXPECT_NEAR(static_cast<double>(plan.kv_pages.host) / pages, 0.25, 0.05);
  EXPECT_EQ(plan.executor.activations.device, 32);
  EXPECT_EQ(plan.executor.activations.host, 16);
  EXPECT_GE(plan.executor.activations.disk, 16);
}

// With one memory the host is where the device is.
TEST_F(MemoryPlanTest, TheHostsShareIsTheDevicesWhereMemoryIsUnified) {
  options_.tiers.kv = {0.0, 1.0};
  options_.tiers.weights = {0.5, 0.5};
  options_.tiers.activations = {0.0, 1.0};
  const MemoryPlan plan = Plan();
  EXPECT_TRUE(plan.weights.all_on_device());
  EXPECT_EQ(plan.kv_pages.host + plan.kv_pages.disk, 0);
  EXPECT_TRUE(plan.executor.activations.all_on_device());
}

TEST_F(MemoryPlanTest, StreamedWeightsAreOneBatchInARingAndSeveralInTwoLayers) {
  options_.tiers.weights = {0.0, 0.0};
  EXPECT_EQ(Plan().executor.max_batch_tokens, 64);
  options_.tiers.buffering = WeightBuffering::kTwoLayers;
  options_.weight_ring_bytes = 1;
  const MemoryPlan plan = Plan();
  EXPECT_EQ(plan.executor.max_batch_tokens, 16);
  int64_t layer_bytes = 0;
  for (const StreamedShard& shard : StreamedShards(pack_->manifest(), plan.weights)) {
    layer_bytes += shard.layer == 0 ? shard.bytes : 0;
  }
  EXPECT_GE(plan.host_ring_bytes, 2 * layer_bytes);
}

TEST_F(MemoryPlanTest, ARefusalNamesTheTierAndABudgetThatIsEnough) {
  options_.tiers.device_budget_bytes = 1;
  const absl::Status status = PlanMemory(options_, pack_->manifest(), pack_->path()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "device budget of 1 bytes"));
  const std::string message(status.message());
  options_.tiers.device_budget_bytes = std::stoll(message.substr(message.find("at least ") + 9));
  EXPECT_OK(PlanMemory(options_, pack_->manifest(), pack_->path()));
  options_.tiers.kv = {0.0, 0.0};
  options_.tiers.disk_budget_bytes = 4096;
  EXPECT_THAT(PlanMemory(options_, pack_->manifest(), pack_->path()),
              StatusIs(absl::StatusCode::kResourceExhausted, "the disk has 4096 bytes"));
}

// Of every kind of plan: all on the device, streamed, in three tiers.
TEST_F(MemoryPlanTest, SaysWhatAnEngineTakesFromItsPools) {
  const TemporaryFolder folder;
  options_.tiers.spill_folder = folder.path();
  const auto expect_taken = [&] {
    const MemoryPlan plan = Plan();
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Create(options_));
    const EngineUsage usage = engine->Usage();
    constexpr double kRounding = 12 * 4096;  // a block of memory each
    EXPECT_NEAR(static_cast<double>(plan.host_bytes), static_cast<double>(usage.memory_bytes),
                kRounding);
    EXPECT_NEAR(static_cast<double>(plan.device_bytes),
                static_cast<double>(usage.device_memory_bytes), kRounding);
  };
  expect_taken();
  options_.weight_budget_bytes = 0;
  expect_taken();
  options_.tiers.device_budget_bytes = 64 * kMiB;
  options_.tiers.weights = {0.25, 0.5};
  options_.tiers.kv = {0.5, 0.25};
  options_.tiers.activations = {0.5, 0.25};
  options_.tiers.host_attention = true;
  expect_taken();
}

TEST_F(MemoryPlanTest, PackedKeysAndValuesTakeTheirBytes) {
  const PackManifest manifest = ManifestOf(FindKnownShape("1b").value(), DType::kBF16);
  const KvPageLayout plain = KvLayoutOf(manifest.config, ComputeType::kBF16, std::nullopt);
  const KvPageLayout packed = KvLayoutOf(manifest.config, ComputeType::kBF16, DType::kU4G64);
  EXPECT_EQ(plain.page_bytes(), 2 * 32768);
  EXPECT_EQ(packed.page_bytes(), 2 * 12288);  // 4.5 bits of 16, in blocks of 4 KiB
  options_.memory_budget_bytes = 4096 * kMiB;
  const auto pages = [&](std::optional<DType> kv) {
    options_.kv_type = kv;
    const auto plan = PlanMemory(options_, manifest, "1b");
    EXPECT_OK(plan);
    return plan.ok() ? static_cast<double>(plan->kv_pages.total()) : 0.0;
  };
  options_.max_block_requests = 64;  // more than there is room for
  EXPECT_NEAR(pages(DType::kU4G64) / pages(std::nullopt), 32768.0 / 12288.0, 0.01);
}

TEST_F(MemoryPlanTest, RefusesSharesAndBudgetsThatMakeNoSense) {
  const auto expect_refused = [&](const char* words) {
    EXPECT_THAT(options_.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, words));
    options_.tiers = {};
  };
  options_.tiers.kv = {0.7, 0.7};
  expect_refused("keys and values");
  options_.tiers.weights = {1.5, 0.0};
  expect_refused("weights");
  options_.tiers.kv = {0.5, 0.0};
  expect_refused("disk");
  options_.tiers.disk_budget_bytes = 1;
  expect_refused("spill_folder");
  options_.tiers.device_budget_bytes = -1;
  expect_refused("device");
  options_.tiers.upload_bytes_per_s = -1.0;
  expect_refused("upload_bytes_per_s");
  options_.kv_type = DType::kI4G64;
  expect_refused("kv_type is I4G64");
  options_.kv_type = DType::kBF16;
  options_.compute_type = ComputeType::kF32;
  expect_refused("kv_type is BF16");
  options_.kv_type = DType::kU4G64;
  EXPECT_OK(options_.Validate());
}

}  // namespace
}  // namespace nightshift
