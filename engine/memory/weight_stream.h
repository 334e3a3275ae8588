// WeightStream: the weights that are not in memory, read from disk in the order in which every
// sweep uses them, ahead of their use.
//
// Shards lie in a ring: the oldest is in use, the ones behind it are there or on their way, and a
// freed place is read into at once, also across the edge of a sweep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/memory/pool.h"
#include "engine/memory/shard_reader.h"
#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"
#include "kernels/base/worker_pool.h"
#include "kernels/tensor_view.h"

namespace nightshift {

struct WeightStreamOptions {
  ComputeType compute_type = ComputeType::kF32;
  // Of shards as stored, at least two of the largest. More hides more of a slow moment of the disk.
  int64_t ring_bytes = 0;
  DiskQueueOptions disk;
};

// Used by one thread. The pack, the pool and the workers must outlive it.
class WeightStream : public WeightAccess {
 public:
  // Bytes that Create takes from the pool, in its three buffers.
  static int64_t MemoryBytes(const WeightPlacement& placement, int64_t ring_bytes);

  // Begins to read. `workers` expand shards that ops cannot read as stored.
  // Errors: RESOURCE_EXHAUSTED (pool); as ShardReader::Create.
  static absl::StatusOr<std::unique_ptr<WeightStream>> Create(const Pack& pack,
                                                              const WeightPlacement& placement,
                                                              const WeightStreamOptions& options,
                                                              Pool& pool, WorkerPool& workers);

  // In the order of placement.streamed, which begins again after its last. Waits for the disk.
  WeightShardView Acquire(ShardIndex expected) override;
  void Release() override;
  void ReadAside(std::span<const ShardIndex> shards,
                 const std::function<void(const WeightShardView&)>& use) override;

  // The first fault: a shard that could not be read or whose checksum differs. From then on what
  // Acquire returns is memory without meaning.
  const absl::Status& status() const { return status_; }
  const ShardReader& reader() const { return *reader_; }

 private:
  WeightStream(std::vector<ShardIndex> order, ComputeType compute_type, WorkerPool& workers);
  // Reads into the ring as far as it is free.
  void ReadAhead();
  // Free memory of the ring for `bytes`, or empty.
  std::span<std::byte> Allocate(int64_t bytes) const;
  // A shard as ops read it, of its stored bytes or of expanded_.
  WeightShardView ViewOf(ShardIndex shard, std::span<const std::byte> stored);

  const std::vector<ShardIndex> order_;
  const ComputeType compute_type_;
  WorkerPool& workers_;
  Buffer ring_;
  Buffer aside_;
  Buffer expanded_;
  size_t slot_bytes_ = 0;  // of aside_
  absl::Status status_;
  std::deque<PendingShard> pending_;  // oldest first: the one in use, or to be used next
  size_t next_read_ = 0;              // in order_
  // Destroyed first: completes the fences of what is pending, which no longer writes memory then.
  std::unique_ptr<ShardReader> reader_;
};

}  // namespace nightshift
