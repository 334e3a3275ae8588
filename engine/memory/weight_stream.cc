#include "engine/memory/weight_stream.h"

#include <utility>

#include "engine/model/weight_loader.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Shards read aside together: 16 MiB on their way keep an NVMe disk at its sequential rate.
constexpr size_t kAsideSlots = 4;

}  // namespace

int64_t WeightStream::MemoryBytes(const WeightPlacement& placement, int64_t ring_bytes) {
  const int64_t aside_bytes =
      static_cast<int64_t>(kAsideSlots) * TransferBytes(placement.max_stored_bytes);
  return TransferBytes(ring_bytes) + aside_bytes + TransferBytes(placement.max_expanded_bytes);
}

absl::StatusOr<std::unique_ptr<WeightStream>> WeightStream::Create(
    const Pack& pack, const WeightPlacement& placement, const WeightStreamOptions& options,
    Pool& pool, WorkerPool& workers) {
  std::unique_ptr<WeightStream> stream(
      new WeightStream(placement.streamed, options.compute_type, workers));
  const int64_t largest = TransferBytes(placement.max_stored_bytes);
  CHECK_GE(options.ring_bytes, 2 * largest);
  stream->slot_bytes_ = static_cast<size_t>(largest);
  ASSIGN_OR_RETURN(stream->ring_, pool.Reserve(options.ring_bytes, "the ring of streamed weights"));
  ASSIGN_OR_RETURN(stream->aside_, pool.Reserve(static_cast<int64_t>(kAsideSlots) * largest,
                                                "weights that are read aside"));
  if (placement.max_expanded_bytes > 0) {
    ASSIGN_OR_RETURN(stream->expanded_,
                     pool.Reserve(placement.max_expanded_bytes, "an expanded shard of weights"));
  }
  DiskQueueOptions disk = options.disk;
  disk.memory = {stream->ring_.bytes(), stream->aside_.bytes()};
  ASSIGN_OR_RETURN(stream->reader_, ShardReader::Create(pack, disk));
  stream->ReadAhead();
  return stream;
}

WeightStream::WeightStream(std::vector<ShardIndex> order, ComputeType compute_type,
                           WorkerPool& workers)
    : order_(std::move(order)), compute_type_(compute_type), workers_(workers) {}

WeightShardView WeightStream::Acquire(ShardIndex expected) {
  CHECK(!pending_.empty());
  CHECK(pending_.front().shard == expected);
  status_.Update(reader_->Wait(pending_.front()));
  return ViewOf(expected, pending_.front().memory);
}

void WeightStream::Release() {
  CHECK(!pending_.empty());
  CHECK(pending_.front().fence->is_complete());
  pending_.pop_front();
  ReadAhead();
}

void WeightStream::ReadAside(std::span<const ShardIndex> shards,
                             const std::function<void(const WeightShardView&)>& use) {
  std::vector<ShardTarget> targets;
  for (size_t i = 0; i < shards.size(); ++i) {
    targets.push_back({shards[i], aside_.bytes().subspan(i % kAsideSlots * slot_bytes_, slot_bytes_)});
  }
  status_.Update(reader_->ReadEach(
      targets, kAsideSlots,
      [&](ShardIndex shard, std::span<const std::byte> stored) { use(ViewOf(shard, stored)); }));
}

void WeightStream::ReadAhead() {
  while (pending_.size() < order_.size()) {
    const ShardIndex shard = order_[next_read_];
    const std::span<std::byte> memory = Allocate(TransferBytes(reader_->EntryOf(shard).bytes));
    if (memory.empty()) {
      return;
    }
    pending_.push_back(reader_->Submit({shard, memory}));
    next_read_ = (next_read_ + 1) % order_.size();
  }
}

std::span<std::byte> WeightStream::Allocate(int64_t bytes) const {
  const size_t size = static_cast<size_t>(bytes);
  const std::span<std::byte> ring = ring_.bytes();
  if (pending_.empty()) {
    return ring.first(size);
  }
  const size_t oldest = static_cast<size_t>(pending_.front().memory.data() - ring.data());
  const std::span<std::byte> youngest = pending_.back().memory;
  const size_t end = static_cast<size_t>(youngest.data() - ring.data()) + youngest.size();
  if (end <= oldest) {  // in use: all but [end, oldest)
    return oldest - end >= size ? ring.subspan(end, size) : std::span<std::byte>();
  }
  if (ring.size() - end >= size) {
    return ring.subspan(end, size);
  }
  return oldest >= size ? ring.first(size) : std::span<std::byte>();
}

WeightShardView WeightStream::ViewOf(ShardIndex shard, std::span<const std::byte> stored) {
  const TensorEntry& tensor = reader_->TensorOf(shard);
  const std::byte* data = stored.data();
  if (LoadedDType(tensor.dtype, compute_type_) != tensor.dtype) {
    const size_t bytes = static_cast<size_t>(LoadedShardBytes(tensor, shard.shard, compute_type_));
    ExpandShard(tensor, shard.shard, compute_type_, stored, expanded_.bytes().first(bytes),
                workers_);
    data = expanded_.bytes().data();
  }
  return LoadedShardView(tensor, shard.shard, compute_type_, data);
}

}  // namespace nightshift
