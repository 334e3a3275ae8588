#include "engine/memory/weight_stream.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/load_shard.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

// A pack of the tests, read by the stream and, shard by shard, by the pack itself.
class WeightStreamTest : public ::testing::Test {
 protected:
  void Open(const std::string& path, ComputeType compute_type, int64_t budget_bytes) {
    pack_ = std::move(Pack::Open(path)).value();
    compute_type_ = compute_type;
    placement_ = PlaceWeights(pack_->manifest(), compute_type, budget_bytes);
  }
  absl::Status CreateStream(int64_t ring_shards) {
    const int64_t ring_bytes = ring_shards * TransferBytes(placement_.max_stored_bytes);
    pool_ = std::make_unique<Pool>("host", WeightStream::MemoryBytes(placement_, ring_bytes));
    auto stream =
        WeightStream::Create(*pack_, placement_, {.compute_type = compute_type_,
                                                  .ring_bytes = ring_bytes,
                                                  .disk = {}},
                             *pool_, workers_);
    if (stream.ok()) {
      stream_ = *std::move(stream);
    }
    return stream.status();
  }
  std::vector<std::byte> BytesOf(const WeightShardView& view) const {
    const int64_t bytes = view.panels() * view.panel_elements() * FloatBytes(view.dtype);
    return {view.data, view.data + bytes};
  }
  std::vector<std::byte> Expected(ShardIndex shard) const {
    const TensorEntry& tensor = pack_->manifest().tensors[shard.tensor];
    std::vector<std::byte> bytes(
        static_cast<size_t>(LoadedShardBytes(tensor, shard.shard, compute_type_)));
    EXPECT_OK(LoadShard(*pack_, tensor, shard.shard, compute_type_, bytes));
    return bytes;
  }
  void ExpectSweeps(int sweeps) {
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      for (const ShardIndex& shard : placement_.streamed) {
        EXPECT_EQ(BytesOf(stream_->Acquire(shard)), Expected(shard));
        stream_->Release();
      }
    }
    EXPECT_OK(stream_->status());
  }

  TemporaryFolder folder_;
  std::unique_ptr<Pack> pack_;
  ComputeType compute_type_ = ComputeType::kF32;
  WeightPlacement placement_;
  WorkerPool workers_{2};
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<WeightStream> stream_;
};

TEST_F(WeightStreamTest, BringsEveryShardOfEverySweepInOrder) {
  Open(TinyPack("llama"), ComputeType::kF32, 0);
  ASSERT_FALSE(placement_.streamed.empty());
  for (const int64_t ring_shards : {2, 3, 7, 100}) {
    SCOPED_TRACE(ring_shards);
    ASSERT_OK(CreateStream(ring_shards));
    ExpectSweeps(3);
    stream_.reset();
  }
}

TEST_F(WeightStreamTest, ReadsOnlyWhatIsNotResident) {
  Open(TinyPack("llama"), ComputeType::kBF16, 200 << 10);
  EXPECT_FALSE(placement_.all_resident());
  const size_t matrices = std::count_if(
      pack_->manifest().tensors.begin(), pack_->manifest().tensors.end(),
      [](const TensorEntry& tensor) { return tensor.layout == TensorLayout::kMatMul; });
  EXPECT_LT(placement_.streamed.size(), matrices - 2);
  ASSERT_OK(CreateStream(2));
  ExpectSweeps(2);
}

TEST_F(WeightStreamTest, ExpandsWhatOpsCannotReadAsStored) {
  Open(TinyPack("opt"), ComputeType::kBF16, 0);  // f16
  EXPECT_GT(placement_.max_expanded_bytes, 0);
  ASSERT_OK(CreateStream(4));
  ExpectSweeps(2);
}

TEST_F(WeightStreamTest, ReadsAsideBetweenShards) {
  Open(TinyPack("llama"), ComputeType::kF32, 0);
  ASSERT_OK(CreateStream(2));
  std::vector<ShardIndex> shards(placement_.streamed.rbegin(), placement_.streamed.rend());
  EXPECT_EQ(BytesOf(stream_->Acquire(placement_.streamed.front())), Expected(shards.back()));
  stream_->Release();
  size_t seen = 0;
  stream_->ReadAside(shards, [&](const WeightShardView& view) {
    EXPECT_EQ(BytesOf(view), Expected(shards[seen++]));
  });
  EXPECT_EQ(seen, shards.size());
  EXPECT_EQ(BytesOf(stream_->Acquire(placement_.streamed[1])), Expected(placement_.streamed[1]));
  stream_->Release();
  EXPECT_OK(stream_->status());
}

TEST_F(WeightStreamTest, NamesTheShardWhoseByteFlipped) {
  const std::string path = folder_.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), path, std::filesystem::copy_options::recursive);
  Open(path, ComputeType::kF32, 0);
  const ShardIndex bad = placement_.streamed[3];
  const TensorEntry& tensor = pack_->manifest().tensors[bad.tensor];
  {
    std::fstream file(path + "/" + kExtentFile, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(tensor.shards[bad.shard].offset + 5);
    file.put('\x55');
  }
  ASSERT_OK(CreateStream(3));
  for (size_t i = 0; i < 3; ++i) {
    stream_->Acquire(placement_.streamed[i]);
    stream_->Release();
  }
  EXPECT_OK(stream_->status());
  stream_->Acquire(bad);
  EXPECT_THAT(stream_->status(), StatusIs(absl::StatusCode::kDataLoss, tensor.name));
  EXPECT_THAT(stream_->status(), StatusIs(absl::StatusCode::kDataLoss, "checksum"));
}

TEST_F(WeightStreamTest, SurvivesAnExtentThatShrinksMeanwhile) {
  const std::string path = folder_.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), path, std::filesystem::copy_options::recursive);
  Open(path, ComputeType::kF32, 0);
  std::filesystem::resize_file(path + "/" + kExtentFile, 4096);
  ASSERT_OK(CreateStream(2));
  for (const ShardIndex& shard : placement_.streamed) {
    stream_->Acquire(shard);
    stream_->Release();
  }
  EXPECT_THAT(stream_->status(), StatusIs(absl::StatusCode::kDataLoss, "the file ends"));
}

TEST_F(WeightStreamTest, RefusesAPoolThatDoesNotHoldTheRing) {
  Open(TinyPack("llama"), ComputeType::kF32, 0);
  Pool small("host", 4096);
  EXPECT_THAT(WeightStream::Create(*pack_, placement_,
                                   {.compute_type = ComputeType::kF32,
                                    .ring_bytes = 4 * TransferBytes(placement_.max_stored_bytes),
                                    .disk = {}},
                                   small, workers_),
              StatusIs(absl::StatusCode::kResourceExhausted, "the ring of streamed weights"));
}

}  // namespace
}  // namespace nightshift
