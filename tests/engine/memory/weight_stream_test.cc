#include "engine/memory/weight_stream.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/clock.h"
#include "kernels/group_format.h"
#include "tests/support/load_shard.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr int64_t kPoolBytes = int64_t{64} << 20;

// A pack of the tests, brought by the stream and read, shard by shard, by the pack itself. The
// parameter: whether the device's memory is the host's.
class WeightStreamTest : public ::testing::TestWithParam<bool> {
 protected:
  bool unified() const { return GetParam(); }

  void Open(const std::string& path, ComputeType compute_type, const WeightBudget& budget) {
    pack_ = std::move(Pack::Open(path)).value();
    compute_type_ = compute_type;
    placement_ = PlaceWeights(pack_->manifest(), compute_type, budget);
    device_ = unified() ? CreateCpuDevice(2).value() : CreateDiscreteCpuDevice({}, clock_).value();
    resident_ = ResidentWeights::Load(*pack_, placement_, compute_type, {}, device_pool(),
                                      host_pool_, *device_)
                    .value();
  }
  Pool& device_pool() { return unified() ? host_pool_ : device_pool_; }
  WeightStreamOptions Options() const {
    const int64_t ring_bytes = 3 * TransferBytes(placement_.max_stored_bytes);
    return {.compute_type = compute_type_,
            .host_ring_bytes = ring_bytes,
            .device_ring_bytes = unified() ? 0 : ring_bytes,
            .disk = {},
            .checks = checks_};
  }
  absl::Status CreateStream() {
    auto stream = WeightStream::Create(*pack_, placement_, *resident_, Options(), device_pool(),
                                       host_pool_, *device_);
    if (stream.ok()) {
      stream_ = *std::move(stream);
    }
    return stream.status();
  }
  // Brings a shard to the place number `place` of the rings.
  absl::Status Bring(size_t index, int64_t place) {
    const int64_t offset = place * TransferBytes(placement_.max_stored_bytes);
    if (placement_.TierOf(stream_->shard(index)) == Tier::kDisk) {
      Fence fence;
      stream_->Read(index, offset, &fence);
      const absl::Status status = stream_->Name(index, fence.Wait());
      if (!status.ok()) {
        return status;
      }
    }
    return unified() ? absl::OkStatus() : stream_->Upload(index, offset, offset);
  }
  static WeightStream::UploadNow UploadNow() {
    return [](const std::function<absl::Status()>& copy) { return copy(); };
  }
  std::vector<std::byte> BytesOf(const WeightShardView& view) const {
    const int64_t bytes = view.panels() * PanelBytes(view.dtype, view.inputs);
    return {view.data, view.data + bytes};
  }
  std::vector<std::byte> Expected(ShardIndex shard) const {
    const TensorEntry& tensor = pack_->manifest().tensors[shard.tensor];
    std::vector<std::byte> bytes(
        static_cast<size_t>(LoadedShardBytes(tensor, shard.shard, compute_type_)));
    EXPECT_OK(LoadShard(*pack_, tensor, shard.shard, compute_type_, bytes));
    return bytes;
  }
  void ExpectAllShards() {
    for (size_t i = 0; i < stream_->num_shards(); ++i) {
      const int64_t place = static_cast<int64_t>(i % 3);
      ASSERT_OK(Bring(i, place));
      EXPECT_EQ(BytesOf(stream_->View(i, place * TransferBytes(placement_.max_stored_bytes))),
                Expected(stream_->shard(i)));
    }
  }

  const RealClock clock_{};
  TemporaryFolder folder_;
  std::unique_ptr<Pack> pack_;
  ComputeType compute_type_ = ComputeType::kF32;
  WeightChecks checks_ = WeightChecks::kEveryRead;
  WeightPlacement placement_;
  Pool host_pool_{"host", kPoolBytes};
  Pool device_pool_{"device", kPoolBytes};
  std::unique_ptr<Device> device_;
  std::unique_ptr<ResidentWeights> resident_;
  std::unique_ptr<WeightStream> stream_;
};

TEST_P(WeightStreamTest, BringsEveryShard) {
  Open(TinyPack("llama"), ComputeType::kF32, {});
  ASSERT_FALSE(placement_.streamed.empty());
  ASSERT_OK(CreateStream());
  ExpectAllShards();
}

TEST_P(WeightStreamTest, TakesFromTheHostWhatItKeeps) {
  Open(TinyPack("llama"), ComputeType::kBF16,
       {.device_bytes = 60 << 10, .host_bytes = unified() ? 0 : 60 << 10});
  EXPECT_FALSE(placement_.all_on_device());
  EXPECT_EQ(placement_.host_bytes > 0, !unified());
  EXPECT_GT(placement_.streamed_disk_bytes, 0);
  ASSERT_OK(CreateStream());
  ExpectAllShards();
}

TEST_P(WeightStreamTest, ExpandsWhatOpsCannotReadAsStored) {
  Open(TinyPack("opt"), ComputeType::kBF16, {});  // f16
  EXPECT_GT(placement_.max_expanded_bytes, 0);
  ASSERT_OK(CreateStream());
  ExpectAllShards();
}

TEST_P(WeightStreamTest, ReadsAsideInTheOrderAsked) {
  Open(TinyPack("llama"), ComputeType::kF32, {.host_bytes = unified() ? 0 : 60 << 10});
  ASSERT_OK(CreateStream());
  const std::vector<ShardIndex> shards(placement_.streamed.rbegin(), placement_.streamed.rend());
  size_t seen = 0;
  EXPECT_OK(stream_->ReadAside(shards, UploadNow(), [&](const WeightShardView& view) {
    EXPECT_EQ(BytesOf(view), Expected(shards[seen++]));
  }));
  EXPECT_EQ(seen, shards.size());
}

TEST_P(WeightStreamTest, NamesTheShardWhoseByteFlipped) {
  const std::string path = folder_.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), path, std::filesystem::copy_options::recursive);
  Open(path, ComputeType::kF32, {});
  const ShardIndex bad = placement_.streamed[3];
  const TensorEntry& tensor = pack_->manifest().tensors[bad.tensor];
  {
    std::fstream file(path + "/" + kExtentFile, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(tensor.shards[bad.shard].offset + 5);
    file.put('\x55');
  }
  ASSERT_OK(CreateStream());
  EXPECT_OK(Bring(2, 0));
  const absl::Status status = Bring(3, 1);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, tensor.name));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "checksum"));
  EXPECT_THAT(stream_->ReadAside({&bad, 1}, UploadNow(), [](const WeightShardView&) {}),
              StatusIs(absl::StatusCode::kDataLoss, tensor.name));
}

TEST_P(WeightStreamTest, ChecksOnlyTheFirstReadWhenAskedTo) {
  const std::string path = folder_.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), path, std::filesystem::copy_options::recursive);
  Open(path, ComputeType::kF32, {});
  checks_ = WeightChecks::kFirstRead;
  ASSERT_OK(CreateStream());
  EXPECT_OK(Bring(3, 1));
  {
    const ShardIndex shard = placement_.streamed[3];
    std::fstream file(path + "/" + kExtentFile, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(pack_->manifest().tensors[shard.tensor].shards[shard.shard].offset + 5);
    file.put('\x55');
  }
  EXPECT_OK(Bring(3, 1));
  checks_ = WeightChecks::kEveryRead;
  stream_.reset();
  ASSERT_OK(CreateStream());
  EXPECT_THAT(Bring(3, 1), StatusIs(absl::StatusCode::kDataLoss, "checksum"));
}

TEST_P(WeightStreamTest, SurvivesAnExtentThatShrinksMeanwhile) {
  const std::string path = folder_.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), path, std::filesystem::copy_options::recursive);
  Open(path, ComputeType::kF32, {});
  std::filesystem::resize_file(path + "/" + kExtentFile, 4096);
  ASSERT_OK(CreateStream());
  EXPECT_THAT(Bring(stream_->num_shards() - 1, 0),
              StatusIs(absl::StatusCode::kDataLoss, "the file ends"));
}

TEST_P(WeightStreamTest, RefusesAPoolThatDoesNotHoldTheRing) {
  Open(TinyPack("llama"), ComputeType::kF32, {});
  Pool small("host", 4096);
  EXPECT_THAT(WeightStream::Create(*pack_, placement_, *resident_, Options(),
                                   unified() ? small : device_pool_, small, *device_),
              StatusIs(absl::StatusCode::kResourceExhausted, "the ring of streamed weights"));
}

TEST_P(WeightStreamTest, TakesAsManyBytesAsItSays) {
  Open(TinyPack("opt"), ComputeType::kBF16, {});
  const int64_t host_free = host_pool_.free_bytes();
  const int64_t device_free = device_pool_.free_bytes();
  ASSERT_OK(CreateStream());
  EXPECT_EQ(host_free - host_pool_.free_bytes(), WeightStream::HostBytes(placement_, Options()));
  EXPECT_EQ(device_free - device_pool_.free_bytes(),
            WeightStream::DeviceBytes(placement_, Options()));
}

INSTANTIATE_TEST_SUITE_P(Memories, WeightStreamTest, testing::Bool(), [](const auto& unified) {
  return unified.param ? "unified" : "discrete";
});

}  // namespace
}  // namespace nightshift
