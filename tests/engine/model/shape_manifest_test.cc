#include "engine/model/shape_manifest.h"

#include <string>

#include <gtest/gtest.h>

#include "engine/model/random_pack.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

TEST(ShapeManifestTest, IsThatOfAPackOfTheShape) {
  const TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const KnownShape shape, FindKnownShape("tiny"));
  for (const DType weights : {DType::kBF16, DType::kF32, DType::kU4G64}) {
    RandomPackOptions options;
    options.output = folder.path() + "/" + DTypeName(weights);
    options.shape = shape;
    options.weights = weights;
    ASSERT_OK_AND_ASSIGN(const PackManifest written, WriteRandomPack(options));
    const PackManifest manifest = ManifestOf(shape, weights);
    EXPECT_EQ(manifest.extent_bytes, written.extent_bytes);
    ASSERT_EQ(manifest.tensors.size(), written.tensors.size());
    for (size_t i = 0; i < manifest.tensors.size(); ++i) {
      const TensorEntry& tensor = manifest.tensors[i];
      EXPECT_EQ(tensor.name, written.tensors[i].name);
      EXPECT_EQ(tensor.dtype, written.tensors[i].dtype);
      ASSERT_EQ(tensor.shards.size(), written.tensors[i].shards.size());
      for (size_t j = 0; j < tensor.shards.size(); ++j) {
        const ShardEntry& shard = written.tensors[i].shards[j];
        EXPECT_EQ(tensor.shards[j].first_output, shard.first_output);
        EXPECT_EQ(tensor.shards[j].outputs, shard.outputs);
        EXPECT_EQ(tensor.shards[j].offset, shard.offset);
        EXPECT_EQ(tensor.shards[j].bytes, shard.bytes);
      }
    }
  }
}

// Sizes by hand: 4 bits and an fp16 scale and minimum for 64 of them; 8 bits and a scale for 32.
TEST(ShapeManifestTest, CompressedTypesTakeTheirGroupsBytes) {
  ASSERT_OK_AND_ASSIGN(const KnownShape shape, FindKnownShape("opt-6.7b"));
  const double plain = static_cast<double>(ManifestOf(shape, DType::kBF16).extent_bytes);
  const auto share = [&](DType weights) {
    return static_cast<double>(ManifestOf(shape, weights).extent_bytes) / plain;
  };
  EXPECT_NEAR(share(DType::kU4G64), 4.5 / 16, 0.002);
  EXPECT_NEAR(share(DType::kI8G32), 8.5 / 16, 0.002);
  EXPECT_NEAR(share(DType::kF32), 2.0, 0.002);
}

TEST(ShapeManifestTest, MatricesThatSuperBlocksDoNotFitStayAsTheyWere) {
  ASSERT_OK_AND_ASSIGN(const KnownShape shape, FindKnownShape("qwen2-0.5b"));  // rows of 896
  const PackManifest manifest = ManifestOf(shape, DType::kQ4K);
  for (const TensorEntry& tensor : manifest.tensors) {
    if (tensor.layout == TensorLayout::kMatMul) {
      EXPECT_EQ(tensor.dtype, tensor.inputs % 256 == 0 ? DType::kQ4K : DType::kBF16) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace nightshift
