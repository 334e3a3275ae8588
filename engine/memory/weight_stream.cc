#include "engine/memory/weight_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/model/weight_loader.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Shards read aside together: 16 MiB on their way keep an NVMe disk at its sequential rate.
constexpr size_t kAsideSlots = 4;

int64_t AsideBytes(const WeightPlacement& placement) {
  return static_cast<int64_t>(kAsideSlots) * TransferBytes(placement.max_stored_bytes);
}

bool IsUnified(const WeightStreamOptions& options) {
  return options.device_ring_bytes == 0;
}

}  // namespace

int64_t WeightStream::HostBytes(const WeightPlacement& placement,
                                const WeightStreamOptions& options) {
  return TransferBytes(options.host_ring_bytes) + AsideBytes(placement) +
         (IsUnified(options) ? TransferBytes(placement.max_expanded_bytes) : 0);
}

int64_t WeightStream::DeviceBytes(const WeightPlacement& placement,
                                  const WeightStreamOptions& options) {
  return IsUnified(options) ? 0
                            : TransferBytes(options.device_ring_bytes) +
                                  TransferBytes(placement.max_stored_bytes) +
                                  TransferBytes(placement.max_expanded_bytes);
}

absl::StatusOr<std::unique_ptr<WeightStream>> WeightStream::Create(
    const Pack& pack, const WeightPlacement& placement, ResidentWeights& resident,
    const WeightStreamOptions& options, Pool& device_pool, Pool& host_pool, Device& device) {
  std::unique_ptr<WeightStream> stream(
      new WeightStream(placement, resident, options.compute_type, device));
  RETURN_IF_ERROR(stream->CheckExpansion(pack));
  const int64_t largest = TransferBytes(placement.max_stored_bytes);
  CHECK_EQ(IsUnified(options), device.unified_memory());
  stream->slot_bytes_ = static_cast<size_t>(largest);
  if (options.host_ring_bytes > 0) {
    CHECK_GE(options.host_ring_bytes, 2 * largest);
    ASSIGN_OR_RETURN(stream->host_ring_,
                     host_pool.Reserve(options.host_ring_bytes, "the ring of streamed weights"));
  }
  ASSIGN_OR_RETURN(stream->host_aside_,
                   host_pool.Reserve(AsideBytes(placement), "weights that are read aside"));
  if (!IsUnified(options)) {
    CHECK_GE(options.device_ring_bytes, 2 * largest);
    ASSIGN_OR_RETURN(stream->device_ring_, device_pool.Reserve(options.device_ring_bytes,
                                                               "the ring of uploaded weights"));
    ASSIGN_OR_RETURN(stream->device_aside_,
                     device_pool.Reserve(largest, "weights that are uploaded aside"));
  }
  if (placement.max_expanded_bytes > 0) {
    ASSIGN_OR_RETURN(stream->expanded_, device_pool.Reserve(placement.max_expanded_bytes,
                                                            "an expanded shard of weights"));
  }
  DiskQueueOptions disk = options.disk;
  disk.memory = {stream->host_aside_.bytes()};
  if (options.host_ring_bytes > 0) {
    disk.memory.push_back(stream->host_ring_.bytes());
  }
  ASSIGN_OR_RETURN(stream->reader_, ShardReader::Create(pack, disk, options.checks));
  stream->experts_ = std::make_unique<ExpertStream>(*stream->reader_, stream->host_aside_.bytes(),
                                                    stream->slot_bytes_, resident);
  return stream;
}

WeightStream::WeightStream(const WeightPlacement& placement, const ResidentWeights& resident,
                           ComputeType compute_type, Device& device)
    : placement_(placement), resident_(resident), compute_type_(compute_type), device_(device) {}

absl::Status WeightStream::CheckExpansion(const Pack& pack) const {
  if (device_.arena() == nullptr) {
    return absl::OkStatus();
  }
  for (const ShardIndex shard : placement_.streamed) {
    const TensorEntry& tensor = pack.manifest().tensors[shard.tensor];
    const int64_t loaded_bytes = LoadedShardBytes(tensor, shard.shard, compute_type_);
    const int64_t stored_bytes = tensor.shards[shard.shard].bytes;
    if (LoadedDType(tensor.dtype, compute_type_) != tensor.dtype && loaded_bytes > stored_bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          "upload tensor ", tensor.name, " in every sweep to ", device_.description(), ": its ",
          DTypeName(tensor.dtype), " shards of ", stored_bytes, " bytes take ", loaded_bytes,
          " in ", ComputeTypeName(compute_type_),
          "; give the device more memory, or import the model with --weights int4 or int8"));
    }
  }
  return absl::OkStatus();
}

int64_t WeightStream::RingBytes(size_t index) const {
  return TransferBytes(reader_->EntryOf(placement_.streamed[index]).bytes);
}

void WeightStream::Read(size_t index, int64_t host_offset, Fence* fence) {
  reader_->Submit({placement_.streamed[index],
                   host_ring_.bytes().subspan(static_cast<size_t>(host_offset),
                                              static_cast<size_t>(RingBytes(index)))},
                  fence);
}

absl::Status WeightStream::Upload(size_t index, int64_t host_offset, int64_t device_offset) {
  const ShardIndex shard = placement_.streamed[index];
  const size_t bytes = StoredBytes(shard);
  const std::span<const std::byte> from =
      placement_.TierOf(shard) == Tier::kHost
          ? resident_.HostShard(shard).first(bytes)
          : std::span<const std::byte>(host_ring_.bytes())
                .subspan(static_cast<size_t>(host_offset), bytes);
  return UploadShard(shard, from,
                     device_ring_.bytes().subspan(static_cast<size_t>(device_offset), bytes));
}

absl::Status WeightStream::UploadShard(ShardIndex shard, std::span<const std::byte> from,
                                       std::span<std::byte> to) {
  const TensorEntry& tensor = reader_->TensorOf(shard);
  if (IsExpanded(shard) && !IsExpandedOnDevice(shard)) {
    expanded_on_way_.resize(
        static_cast<size_t>(LoadedShardBytes(tensor, shard.shard, compute_type_)));
    ExpandShard(tensor, shard.shard, compute_type_, from, expanded_on_way_, device_.workers());
    from = expanded_on_way_;
  }
  RETURN_IF_ERROR(device_.Upload(from, to.first(from.size())));
  return device_.UnpackShard(
      LoadedShardView(tensor, shard.shard, compute_type_, to.data()));
}

WeightShardView WeightStream::View(size_t index, int64_t offset) {
  const ShardIndex shard = placement_.streamed[index];
  const std::span<const std::byte> ring =
      device_.unified_memory() ? host_ring_.bytes() : device_ring_.bytes();
  return ViewOf(shard, ring.subspan(static_cast<size_t>(offset), StoredBytes(shard)));
}

absl::Status WeightStream::Name(size_t index, const absl::Status& status) const {
  return reader_->Name(placement_.streamed[index], status);
}

absl::Status WeightStream::ReadAside(std::span<const ShardIndex> shards, const UploadNow& upload,
                                     const std::function<void(const WeightShardView&)>& use) {
  absl::Status status;
  const auto use_stored = [&](ShardIndex shard, std::span<const std::byte> stored) {
    if (!device_.unified_memory()) {
      const std::span<std::byte> there = device_aside_.bytes().first(stored.size());
      status.Update(upload([&] { return UploadShard(shard, stored, there); }));
      stored = there;
    }
    use(ViewOf(shard, stored));
  };
  // Stretches from disk are read together; those between come from the host's memory.
  std::vector<ShardTarget> targets;
  const auto read_targets = [&] {
    status.Update(reader_->ReadEach(targets, kAsideSlots, use_stored));
    targets.clear();
  };
  for (const ShardIndex shard : shards) {
    if (placement_.TierOf(shard) == Tier::kHost) {
      read_targets();
      use_stored(shard, resident_.HostShard(shard).first(StoredBytes(shard)));
    } else {
      const size_t slot = targets.size() % kAsideSlots * slot_bytes_;
      targets.push_back({shard, host_aside_.bytes().subspan(slot, slot_bytes_)});
    }
  }
  read_targets();
  return status;
}

WeightStream::ExpertShard WeightStream::AcquireOfExpert(ShardIndex expected,
                                                        const UploadNow& upload) {
  const ExpertStream::Arrival arrival = experts_->Acquire();
  CHECK(arrival.shard == expected);
  ExpertShard result{.view = {}, .status = arrival.status};
  std::span<const std::byte> stored = arrival.stored;
  if (!device_.unified_memory()) {
    const bool stays_as_stored = arrival.place != nullptr && !IsExpandedOnDevice(expected);
    const std::span<std::byte> there = stays_as_stored
                                           ? std::span(arrival.place, stored.size())
                                           : device_aside_.bytes().first(stored.size());
    result.status.Update(upload([&] { return UploadShard(expected, stored, there); }));
    stored = there;
  }
  result.view = arrival.place == nullptr ? ViewOf(expected, stored)
                                         : Settle(expected, stored, arrival.place);
  return result;
}

WeightShardView WeightStream::ViewOf(ShardIndex shard, std::span<const std::byte> stored) {
  if (IsExpandedOnDevice(shard)) {
    return Settle(shard, stored, expanded_.bytes().data());
  }
  return LoadedShardView(reader_->TensorOf(shard), shard.shard, compute_type_, stored.data());
}

WeightShardView WeightStream::Settle(ShardIndex shard, std::span<const std::byte> stored,
                                     std::byte* place) {
  const TensorEntry& tensor = reader_->TensorOf(shard);
  const size_t bytes = static_cast<size_t>(LoadedShardBytes(tensor, shard.shard, compute_type_));
  if (IsExpandedOnDevice(shard)) {
    ExpandShard(tensor, shard.shard, compute_type_, stored, {place, bytes}, device_.workers());
  } else if (stored.data() != place) {
    CHECK_EQ(stored.size(), bytes);
    CHECK(device_.arena() == nullptr);
    std::copy(stored.begin(), stored.end(), place);
  }
  return LoadedShardView(tensor, shard.shard, compute_type_, place);
}

bool WeightStream::IsExpanded(ShardIndex shard) const {
  const TensorEntry& tensor = reader_->TensorOf(shard);
  return LoadedDType(tensor.dtype, compute_type_) != tensor.dtype;
}

}  // namespace nightshift
