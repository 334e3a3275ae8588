// WeightPlacement: which shards of a pack stay in memory and which a sweep reads from disk. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/pack.h"
#include "engine/model/weights.h"
#include "kernels/dtype.h"

namespace nightshift {

struct WeightPlacement {
  // By tensor: the shards that stay in memory.
  std::vector<std::vector<bool>> is_resident;
  int64_t resident_bytes = 0;  // in memory, in the form that ops read
  // What a sweep reads once, in this order: layers, then the head. The shards of embedding tables
  // and of experts are not in it: a sweep reads those that its tokens hit.
  std::vector<ShardIndex> streamed;
  int64_t streamed_bytes = 0;       // of `streamed`, as stored on disk
  int64_t max_stored_bytes = 0;     // the largest shard that is not resident, as stored
  int64_t max_expanded_bytes = 0;   // the same in the form that ops read; 0 if that is as stored

  bool all_resident() const { return max_stored_bytes == 0; }
};

// Keeps as much in memory as `budget_bytes` hold: vectors and project_in and project_out always, then the embedding if it is also the
// head (a sweep would read it twice), then of every layer the same share, spread evenly over its
// shards, so that reading is even over a sweep.
WeightPlacement PlaceWeights(const PackManifest& manifest, ComputeType compute_type,
                             int64_t budget_bytes);

// Bytes in memory of a tensor's shard, padded so that the disk can be read into it.
int64_t ResidentShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type);

}  // namespace nightshift
