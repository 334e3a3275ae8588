// WeightPlacement: which shards of a pack stay on the device, which on the host, and which a sweep
// reads from disk. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/pack.h"
#include "engine/model/weights.h"
#include "engine/schedule/sweep_steps.h"
#include "engine/schedule/tier.h"
#include "kernels/dtype.h"

namespace nightshift {

// Bytes that weights may take. With unified memory all of it is the device's.
struct WeightBudget {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  // That a sweep looks up in the embedding.
  int64_t sweep_tokens = 0;
};

struct WeightPlacement {
  // By tensor: where each shard lies between sweeps.
  std::vector<std::vector<Tier>> tiers;
  int64_t device_bytes = 0;  // in the form that ops read
  int64_t host_bytes = 0;    // as stored
  // What a sweep brings to the device once, in this order: layers, then the head. The shards of
  // embedding tables and of experts are not in it: a sweep brings those that its tokens hit.
  std::vector<ShardIndex> streamed;
  int64_t streamed_disk_bytes = 0;  // of `streamed`, as stored, from disk and from the host
  int64_t streamed_host_bytes = 0;
  int64_t max_stored_bytes = 0;    // the largest shard that is not on the device, as stored
  int64_t max_expanded_bytes = 0;  // the same in the form that ops read; 0 if that is as stored

  bool all_on_device() const { return max_stored_bytes == 0; }
  Tier TierOf(ShardIndex shard) const { return tiers[shard.tensor][shard.shard]; }
};

// Keeps on the device as much as fits: vectors and project_in and project_out always, then the
// embedding if it is also the head (a sweep would bring it twice) or if a sweep's tokens hit nearly
// all of it (nothing can be computed while it is brought),
// then of every layer the same share, spread evenly over its shards, so that what is brought is
// even over a sweep; of the others on the host what fits there, as evenly.
WeightPlacement PlaceWeights(const PackManifest& manifest, ComputeType compute_type,
                             const WeightBudget& budget);

// The streamed shards as the schedule sees them: in order, with the bytes of their places in a
// ring.
std::vector<StreamedShard> StreamedShards(const PackManifest& manifest,
                                          const WeightPlacement& placement);

// Bytes on the device of a tensor's shard, padded so that the disk can be read into it.
int64_t DeviceShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type);
// Bytes on the host, as stored, padded likewise.
int64_t HostShardBytes(const TensorEntry& tensor, size_t shard_index);

}  // namespace nightshift
