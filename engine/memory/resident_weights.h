// ResidentWeights: the weights of a pack that stay on the device or on the host for as long as the
// engine lives, and the views of all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/io/disk_queue.h"
#include "engine/memory/pool.h"
#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"
#include "engine/model/weights.h"
#include "kernels/device.h"
#include "kernels/dtype.h"

namespace nightshift {

class ResidentWeights {
 public:
  // Reads, verifies and expands the shards that `placement` keeps on the device, its device_bytes
  // of the device's pool, and reads those that it keeps on the host as they are stored, its
  // host_bytes of the host's. With unified memory both pools are one. Shards to be uploaded or
  // expanded pass through memory that is free again when this returns.
  // Errors: RESOURCE_EXHAUSTED (pool); as ShardReader; INVALID_ARGUMENT naming a tensor that the
  // model's configuration needs and the pack lacks.
  static absl::StatusOr<std::unique_ptr<ResidentWeights>> Load(
      const Pack& pack, const WeightPlacement& placement, ComputeType compute_type,
      const DiskQueueOptions& disk, Pool& device_pool, Pool& host_pool, Device& device);

  // Shards that are not on the device have no data.
  const ModelWeights& weights() const { return weights_; }
  // The stored bytes of a shard that is kept on the host.
  std::span<const std::byte> HostShard(ShardIndex shard) const {
    return host_shards_.at({shard.tensor, shard.shard});
  }
  // The same, or empty where the host does not keep it.
  std::span<const std::byte> FindOnHost(ShardIndex shard) const;

  // Gives the place of `out`, a shard of a matrix on the device, to `in`, one of the same size that
  // lies on disk, and returns it: the caller brings the bytes of `in`, as ops read them, before any
  // use.
  std::byte* Exchange(ShardIndex in, ShardIndex out);

 private:
  class Loader;
  ResidentWeights() = default;
  WeightShardView& view(ShardIndex shard) { return (*by_tensor_[shard.tensor])[shard.shard]; }

  Buffer device_;
  Buffer host_;
  std::map<std::pair<size_t, size_t>, std::span<const std::byte>> host_shards_;
  std::deque<std::vector<WeightShardView>> shards_;  // stable addresses for the views
  std::vector<std::vector<WeightShardView>*> by_tensor_;  // of shards_; null for vectors
  ModelWeights weights_;
};

}  // namespace nightshift
