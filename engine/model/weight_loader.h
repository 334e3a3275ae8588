// What a pack's tensors become in memory: the form that ops of one compute type read.
//
// f32: F32, F16 and BF16 weights stay as stored, quantised ones are expanded to F32.
// bf16: everything becomes BF16, rounded to nearest even; for quantised weights that is a second
// rounding after the quantisation (`model show` says so).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/model/pack.h"
#include "kernels/base/worker_pool.h"
#include "kernels/tensor_view.h"

namespace nightshift {

// The type that a matmul weight stored as `stored` has in memory.
DType LoadedDType(DType stored, ComputeType compute_type);

// Bytes of one shard, or of all shards of a matmul tensor, in memory: panels of 64 outputs, inputs
// padded to 32.
int64_t LoadedShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type);
int64_t LoadedBytes(const TensorEntry& tensor, ComputeType compute_type);

// Brings the stored bytes of a matmul tensor's shard to the form that ops read, one panel a task.
// `target` is exactly LoadedShardBytes long and 64-byte aligned. For shards of another type than
// LoadedDType; others are read as they are stored.
void ExpandShard(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type,
                 std::span<const std::byte> stored, std::span<std::byte> target,
                 WorkerPool& workers);

// The view of a shard whose bytes, as ops read them, are at `data`.
WeightShardView LoadedShardView(const TensorEntry& tensor, size_t shard_index,
                                ComputeType compute_type, const std::byte* data);

}  // namespace nightshift
