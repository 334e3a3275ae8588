#include "engine/policy/engine_policy.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr Shares kAllOnDevice = {1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0};

WorkloadProfile Workload(int64_t prompt_tokens, int64_t output_tokens) {
  WorkloadProfile workload;
  workload.classes = {
      {.prompt_tokens = prompt_tokens, .output_tokens = output_tokens, .requests = 1000}};
  return workload;
}

TEST(EnginePolicyTest, ASweepHasRoomForTheBlockAndForPromptsThatKeepItFull) {
  const BlockSizes sizes =
      SizesOf({.block_requests = 64, .batch_requests = 64, .chunk_tokens = 0}, Workload(512, 32));
  EXPECT_EQ(sizes.max_block_requests, 64);
  EXPECT_EQ(sizes.prompt_chunk_tokens, 512);
  // A request in 32 sweeps: two prompts a sweep.
  EXPECT_GE(sizes.max_sweep_tokens, 64 + 2 * 512);
  EXPECT_LE(sizes.max_sweep_tokens, 64 + 3 * 512);
  EXPECT_EQ(sizes.max_batch_tokens, sizes.max_sweep_tokens);
  EXPECT_EQ(sizes.buffering, WeightBuffering::kRing);
}

TEST(EnginePolicyTest, SmallBlocksHaveRoomForOneChunk) {
  const BlockSizes sizes =
      SizesOf({.block_requests = 1, .batch_requests = 1, .chunk_tokens = 128}, Workload(512, 500));
  EXPECT_EQ(sizes.prompt_chunk_tokens, 128);
  EXPECT_GE(sizes.max_sweep_tokens, 129);
  EXPECT_LE(sizes.max_sweep_tokens, 256);
}

TEST(EnginePolicyTest, ABlockOfSeveralBatchesStreamsThroughTwoLayers) {
  const BlockSizes sizes =
      SizesOf({.block_requests = 64, .batch_requests = 16, .chunk_tokens = 0}, Workload(512, 32));
  EXPECT_EQ(sizes.buffering, WeightBuffering::kTwoLayers);
  EXPECT_NEAR(static_cast<double>(sizes.max_batch_tokens),
              static_cast<double>(sizes.max_sweep_tokens) / 4.0, 64.0);
}

TEST(EnginePolicyTest, EveryChoiceGivesOptionsThatAreValid) {
  for (const int64_t block : {1, 3, 64, 5000}) {
    for (const int64_t chunk : {0, 1, 512}) {
      for (const auto& [prompt, output] : {std::pair{1, 0}, {1, 1}, {2000, 1}, {100, 1500}}) {
        const BlockChoice choice{
            .block_requests = block, .batch_requests = (block + 1) / 2, .chunk_tokens = chunk};
        EngineOptions base;
        base.pack_path = "model";
        base.tiers.spill_folder = "spill";
        const EngineOptions options = OptionsFor(
            base, choice, {0.1, 0.2, 0.7, 0.3, 0.3, 0.4, 0.0, 1.0, 0.0},
            {.device = kGiB, .host = kGiB, .disk = kGiB}, Workload(prompt, output), 1000);
        EXPECT_OK(options.Validate()) << block << " " << chunk << " " << prompt << " " << output;
      }
    }
  }
}

TEST(EnginePolicyTest, SharesAndBudgetsBecomeTiers) {
  const BlockChoice choice{.block_requests = 8, .batch_requests = 8, .host_attention = true};
  const EngineOptions options =
      OptionsFor({}, choice, {0.25, 0.75, 0.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.0},
                 {.device = kGiB, .host = 2 * kGiB, .disk = 3 * kGiB}, Workload(100, 10), 1000);
  EXPECT_EQ(options.tiers.device_budget_bytes, kGiB);
  EXPECT_EQ(options.memory_budget_bytes, 2 * kGiB);
  EXPECT_EQ(options.tiers.disk_budget_bytes, 3 * kGiB);
  EXPECT_DOUBLE_EQ(options.tiers.weights.device, 0.25);
  EXPECT_DOUBLE_EQ(options.tiers.weights.host, 0.75);
  EXPECT_DOUBLE_EQ(options.tiers.kv.host, 0.5);
  EXPECT_DOUBLE_EQ(options.tiers.activations.device, 1.0);
  EXPECT_TRUE(options.tiers.host_attention);
}

TEST(EnginePolicyTest, OneMemoryHasOneShareAndAttendsWhereItIs) {
  const BlockChoice choice{.block_requests = 8, .batch_requests = 8, .host_attention = true};
  const EngineOptions options =
      OptionsFor({}, choice, {0.25, 0.25, 0.5, 0.5, 0.5, 0.0, 1.0, 0.0, 0.0}, {.host = kGiB},
                 Workload(100, 10), 1000);
  EXPECT_DOUBLE_EQ(options.tiers.weights.device, 0.5);
  EXPECT_DOUBLE_EQ(options.tiers.kv.device, 1.0);
  EXPECT_EQ(options.tiers.disk_budget_bytes, 0);
  EXPECT_FALSE(options.tiers.host_attention);
}

TEST(EnginePolicyTest, WhatIsAllOnADeviceButForRoundingIs) {
  Shares shares = kAllOnDevice;
  shares[0] = 1.0 - 1e-9;
  const EngineOptions options = OptionsFor({}, {.block_requests = 8}, shares,
                                           {.device = kGiB, .host = kGiB}, Workload(100, 10), 1000);
  EXPECT_EQ(options.tiers.weights.device, 1.0);
}

}  // namespace
}  // namespace nightshift
