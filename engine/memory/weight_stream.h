// WeightStream: the memory that weights which are not on the device pass through, and how they get
// there. When each of them is brought is decided elsewhere (schedule/sweep_steps).
//
// A ring on the host holds shards from disk as they are stored. With unified memory ops read them
// there; else a ring on the device takes them, and those that the host keeps, by upload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/memory/expert_stream.h"
#include "engine/memory/pool.h"
#include "engine/memory/resident_weights.h"
#include "engine/memory/shard_reader.h"
#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace nightshift {

struct WeightStreamOptions {
  ComputeType compute_type = ComputeType::kF32;
  // Of shards as stored. The host's: at least two of the largest; 0 where none come from disk. The
  // device's: the same; 0 with unified memory.
  int64_t host_ring_bytes = 0;
  int64_t device_ring_bytes = 0;
  DiskQueueOptions disk;
  WeightChecks checks = WeightChecks::kEveryRead;
};

// `index` counts placement.streamed. What it refers to must outlive it.
class WeightStream {
 public:
  // Runs a copy to the device in turn with those of Upload, when ops have done with what is there;
  // returns its status.
  using UploadNow = std::function<absl::Status(std::function<absl::Status()>)>;

  // Bytes that Create takes from the pools, in at most three buffers each. With unified memory the
  // host's are all.
  static int64_t HostBytes(const WeightPlacement& placement, const WeightStreamOptions& options);
  static int64_t DeviceBytes(const WeightPlacement& placement, const WeightStreamOptions& options);

  // Errors: RESOURCE_EXHAUSTED (pool); FAILED_PRECONDITION for a device with its own addresses and a
  // tensor that is longer in memory than stored; as ShardReader::Create.
  static absl::StatusOr<std::unique_ptr<WeightStream>> Create(
      const Pack& pack, const WeightPlacement& placement, ResidentWeights& resident,
      const WeightStreamOptions& options, Pool& device_pool, Pool& host_pool, Device& device);

  size_t num_shards() const { return placement_.streamed.size(); }
  ShardIndex shard(size_t index) const { return placement_.streamed[index]; }
  // Bytes of a shard's place in a ring.
  int64_t RingBytes(size_t index) const;
  // Begins to read a shard into the host's ring. From one thread; the fence is completed with the
  // status of the transfer, which must be OK before the shard is used.
  void Read(size_t index, int64_t host_offset, Fence* fence);
  // Copies a shard, from the host's ring or from where the host keeps it, into the device's ring.
  // From one thread.
  absl::Status Upload(size_t index, int64_t host_offset, int64_t device_offset);
  // A shard as ops read it, at its place in the ring that they read. Valid until the next call for
  // a shard that is stored in another form than ops read.
  WeightShardView View(size_t index, int64_t offset);
  // Adds tensor and shard to what went wrong with one.
  absl::Status Name(size_t index, const absl::Status& status) const;

  // As WeightAccess; experts change places with those that `resident` has on the device.
  void BeginExperts(const ExpertDemand& demand) { experts_->Begin(demand); }
  // The next shard of an expert, on the device. After an error it is memory without meaning.
  struct ExpertShard {
    WeightShardView view;
    absl::Status status;
  };
  ExpertShard AcquireOfExpert(ShardIndex expected, const UploadNow& upload);
  void ReleaseOfExpert() { experts_->Release(); }
  const ExpertStream& experts() const { return *experts_; }

  // Shards that are not next (tables of which rows are needed, a second look at the head):
  // hands them to `use` one by one, in order. Waits for the disk. After an error what `use` gets is
  // memory without meaning.
  absl::Status ReadAside(std::span<const ShardIndex> shards, const UploadNow& upload,
                         const std::function<void(const WeightShardView&)>& use);

  const ShardReader& reader() const { return *reader_; }

 private:
  WeightStream(const WeightPlacement& placement, const ResidentWeights& resident,
               ComputeType compute_type, Device& device);
  // A shard as ops read it, of its stored bytes on the device or of expanded_.
  WeightShardView ViewOf(ShardIndex shard, std::span<const std::byte> stored);
  // The same, at `place` on the device, where the stored bytes may be already.
  WeightShardView Settle(ShardIndex shard, std::span<const std::byte> stored, std::byte* place);
  // Brings a stored shard to its place on the device, in turn with all others.
  absl::Status UploadShard(ShardIndex shard, std::span<const std::byte> from,
                           std::span<std::byte> to);
  absl::Status CheckExpansion(const Pack& pack) const;
  bool IsExpanded(ShardIndex shard) const;
  // Where ops read another form than is stored, the host makes it: on its way to a device whose
  // memory it cannot write, else there.
  bool IsExpandedOnDevice(ShardIndex shard) const {
    return IsExpanded(shard) && device_.arena() == nullptr;
  }
  size_t StoredBytes(ShardIndex shard) const {
    return static_cast<size_t>(reader_->EntryOf(shard).bytes);
  }

  const WeightPlacement& placement_;
  const ResidentWeights& resident_;
  const ComputeType compute_type_;
  Device& device_;
  Buffer host_ring_;
  Buffer device_ring_;
  Buffer host_aside_;
  Buffer device_aside_;    // one shard
  Buffer expanded_;        // one shard, on the device
  std::vector<std::byte> expanded_on_way_;  // one shard
  size_t slot_bytes_ = 0;                   // of host_aside_
  std::unique_ptr<ExpertStream> experts_;
  // Destroyed first: completes the fences of what is on its way, which writes no memory any more
  // then.
  std::unique_ptr<ShardReader> reader_;
};

}  // namespace nightshift
