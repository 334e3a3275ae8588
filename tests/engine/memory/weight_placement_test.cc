#include "engine/memory/weight_placement.h"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "engine/model/tensor_names.h"

namespace nightshift {
namespace {

constexpr int64_t kShardBytes = int64_t{1} << 20;
constexpr int64_t kShardOutputs = 512;
constexpr int64_t kInputs = 1024;  // 512 x 1024 bf16: 1 MiB

void AddMatrix(PackManifest& manifest, const std::string& name, int64_t num_shards) {
  TensorEntry tensor;
  tensor.name = name;
  tensor.dtype = DType::kBF16;
  tensor.outputs = num_shards * kShardOutputs;
  tensor.inputs = kInputs;
  for (int64_t i = 0; i < num_shards; ++i) {
    tensor.shards.push_back({.first_output = i * kShardOutputs,
                             .outputs = kShardOutputs,
                             .offset = manifest.extent_bytes,
                             .bytes = kShardBytes});
    manifest.extent_bytes += kShardBytes;
  }
  manifest.tensors.push_back(tensor);
}

void AddVector(PackManifest& manifest, const std::string& name) {
  TensorEntry tensor;
  tensor.name = name;
  tensor.layout = TensorLayout::kVector;
  tensor.outputs = kInputs;
  tensor.inputs = 1;
  tensor.shards = {{.outputs = kInputs, .offset = manifest.extent_bytes, .bytes = 4096}};
  manifest.extent_bytes += 4096;
  manifest.tensors.push_back(tensor);
}

// 4 layers of 10 MiB in shards of 1 MiB, embedding and head of 6.
PackManifest Model(bool tied_head) {
  PackManifest manifest;
  manifest.config.tied_head = tied_head;
  AddMatrix(manifest, "embed", 6);
  for (int64_t layer = 0; layer < 4; ++layer) {
    AddVector(manifest, LayerTensor(layer, "attention_norm.weight"));
    AddMatrix(manifest, LayerTensor(layer, "q.weight"), 1);
    AddMatrix(manifest, LayerTensor(layer, "up.weight"), 6);
    AddMatrix(manifest, LayerTensor(layer, "down.weight"), 3);
  }
  if (!tied_head) {
    AddMatrix(manifest, "head", 6);
  }
  return manifest;
}

std::map<std::string, int64_t> CountStreamed(const PackManifest& manifest,
                                             const WeightPlacement& placement) {
  std::map<std::string, int64_t> shards;
  for (const ShardIndex& shard : placement.streamed) {
    const std::string& name = manifest.tensors[shard.tensor].name;
    ++shards[name.substr(0, name.find('.', name.find('.') + 1))];
  }
  return shards;
}

TEST(WeightPlacementTest, KeepsEverythingThatFits) {
  const PackManifest manifest = Model(false);
  const int64_t all = 52 * kShardBytes + 4 * 4096;
  const WeightPlacement placement =
      PlaceWeights(manifest, ComputeType::kBF16, {.device_bytes = all});
  EXPECT_TRUE(placement.all_on_device());
  EXPECT_EQ(placement.device_bytes, all);
  EXPECT_TRUE(placement.streamed.empty());
  EXPECT_FALSE(
      PlaceWeights(manifest, ComputeType::kBF16, {.device_bytes = all - 1}).all_on_device());
}

TEST(WeightPlacementTest, StreamsEveryMatrixInTheOrderOfASweep) {
  const PackManifest manifest = Model(false);
  const WeightPlacement placement = PlaceWeights(manifest, ComputeType::kBF16, {.device_bytes = 0});
  EXPECT_EQ(placement.device_bytes, 4 * 4096);
  EXPECT_EQ(placement.streamed.size(), 46U);  // all but the embedding
  EXPECT_EQ(placement.streamed_disk_bytes, 46 * kShardBytes);
  EXPECT_EQ(placement.max_stored_bytes, kShardBytes);
  EXPECT_EQ(placement.max_expanded_bytes, 0);
  EXPECT_TRUE(std::is_sorted(placement.streamed.begin(), placement.streamed.end(),
                             [&](const ShardIndex& a, const ShardIndex& b) {
                               const auto offset = [&](const ShardIndex& shard) {
                                 return manifest.tensors[shard.tensor].shards[shard.shard].offset;
                               };
                               return offset(a) < offset(b);
                             }));
}

TEST(WeightPlacementTest, GivesEveryLayerTheSameShareWithinTheBudget) {
  const PackManifest manifest = Model(false);
  for (const int64_t budget_mib : {1, 7, 20, 26, 39, 51}) {
    const int64_t budget = budget_mib * kShardBytes + 4 * 4096;
    const WeightPlacement placement =
        PlaceWeights(manifest, ComputeType::kBF16, {.device_bytes = budget});
    EXPECT_LE(placement.device_bytes, budget);
    EXPECT_GE(placement.device_bytes, budget - kShardBytes);
    auto shards = CountStreamed(manifest, placement);
    for (int64_t layer = 0; layer < 4; ++layer) {
      const double expected = 10.0 * static_cast<double>(52 - budget_mib) / 52.0;
      EXPECT_NEAR(static_cast<double>(shards["layers." + std::to_string(layer)]), expected, 1.0)
          << "budget of " << budget_mib << " MiB, layer " << layer;
    }
  }
}

// Six shards: 12 random tokens hit nine in ten of them, 13 more than that.
TEST(WeightPlacementTest, KeepsAnEmbeddingThatSweepsHitAllOver) {
  const PackManifest manifest = Model(false);
  const auto kept_shards = [&](int64_t sweep_tokens, int64_t budget_shards) {
    const WeightPlacement placement = PlaceWeights(
        manifest, ComputeType::kBF16,
        {.device_bytes = budget_shards * kShardBytes + 4 * 4096, .sweep_tokens = sweep_tokens});
    return std::count(placement.tiers[0].begin(), placement.tiers[0].end(), Tier::kDevice);
  };
  EXPECT_EQ(kept_shards(13, 6), 6);
  EXPECT_LT(kept_shards(12, 6), 2);
  EXPECT_LT(kept_shards(13, 5), 2) << "more than the budget";
}

// A tied embedding is the head too: the last to be streamed, and read at the end of a sweep.
TEST(WeightPlacementTest, KeepsATiedEmbeddingFirstAndReadsItLast) {
  const PackManifest manifest = Model(true);
  const WeightPlacement kept =
      PlaceWeights(manifest, ComputeType::kBF16, {.device_bytes = 6 * kShardBytes + 4 * 4096});
  EXPECT_EQ(CountStreamed(manifest, kept)["embed"], 0);
  EXPECT_EQ(kept.streamed.size(), 40U);
  const WeightPlacement streamed =
      PlaceWeights(manifest, ComputeType::kBF16, {.device_bytes = 5 * kShardBytes});
  EXPECT_GT(CountStreamed(manifest, streamed)["embed"], 0);
  EXPECT_EQ(streamed.streamed.back().tensor, 0U);
}

TEST(WeightPlacementTest, CountsWhatMustBeExpanded) {
  const PackManifest manifest = Model(false);
  const WeightPlacement placement = PlaceWeights(manifest, ComputeType::kF32, {.device_bytes = 0});
  EXPECT_EQ(placement.max_expanded_bytes, 0);  // f32 reads bf16 weights as they are
  PackManifest floats = manifest;
  floats.tensors[2].dtype = DType::kF32;
  floats.tensors[2].shards[0].bytes = 2 * kShardBytes;
  EXPECT_EQ(PlaceWeights(floats, ComputeType::kBF16, {.device_bytes = 0}).max_expanded_bytes,
            kShardBytes);
  EXPECT_EQ(PlaceWeights(floats, ComputeType::kBF16, {.device_bytes = 0}).max_stored_bytes,
            2 * kShardBytes);
}

}  // namespace
}  // namespace nightshift
