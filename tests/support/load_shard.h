// A pack's tensors in memory without an engine: synchronous, one thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/pack.h"
#include "engine/model/weight_loader.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/worker_pool.h"
#include "kernels/panel_layout.h"

namespace nightshift {

// Reads, verifies and expands one shard into `target`, which is LoadedShardBytes long.
inline absl::Status LoadShard(const Pack& pack, const TensorEntry& tensor, size_t shard_index,
                              ComputeType compute_type, std::span<std::byte> target) {
  std::vector<std::byte> stored(static_cast<size_t>(tensor.shards[shard_index].bytes));
  RETURN_IF_ERROR(pack.ReadShard(tensor, shard_index, stored));
  if (LoadedDType(tensor.dtype, compute_type) == tensor.dtype) {
    std::memcpy(target.data(), stored.data(), target.size());
  } else {
    WorkerPool workers(1);
    ExpandShard(tensor, shard_index, compute_type, stored, target, workers);
  }
  return absl::OkStatus();
}

// A whole matrix as panels of floats, whatever ops read: shard after shard, verified and expanded.
inline absl::StatusOr<std::vector<std::byte>> LoadExpanded(const Pack& pack,
                                                           const TensorEntry& tensor,
                                                           ComputeType compute_type) {
  const DType expanded = ExpandedDType(tensor.dtype, compute_type);
  std::vector<std::byte> all;
  WorkerPool workers(1);
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    std::vector<std::byte> stored(static_cast<size_t>(tensor.shards[i].bytes));
    RETURN_IF_ERROR(pack.ReadShard(tensor, i, stored));
    std::vector<std::byte> shard(static_cast<size_t>(
        PanelElements(tensor.shards[i].outputs, tensor.inputs) * FloatBytes(expanded)));
    if (expanded == tensor.dtype) {
      shard = stored;
    } else {
      ExpandShard(tensor, i, compute_type, stored, shard, workers);
    }
    all.insert(all.end(), shard.begin(), shard.end());
  }
  return all;
}

// A vector tensor as f32 [N].
inline absl::StatusOr<std::vector<float>> LoadVector(const Pack& pack, const TensorEntry& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.outputs));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(values));
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    const ShardEntry& shard = tensor.shards[i];
    RETURN_IF_ERROR(
        pack.ReadShard(tensor, i,
                       bytes.subspan(static_cast<size_t>(shard.first_output) * sizeof(float),
                                     static_cast<size_t>(shard.bytes))));
  }
  return values;
}

}  // namespace nightshift
