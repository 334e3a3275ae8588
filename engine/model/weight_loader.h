// What a pack's tensors become in memory: the form that ops of one compute type read.
//
// Integer groups stay as stored: ops expand them a block at a time, to f32 or, in bf16, to bf16,
// which is a second rounding after the quantisation (`model show` says so).
// f32: F32, F16 and BF16 weights stay as stored, super-blocks are expanded to F32.
// bf16: floats and super-blocks become BF16, rounded to nearest even, of quantised weights the
// second time.
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

// Bytes of one shard, or of all shards of a matmul tensor, in memory: whole panels of 64 outputs.
int64_t LoadedShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type);
int64_t LoadedBytes(const TensorEntry& tensor, ComputeType compute_type);

// The float type that quantised weights, or floats of another type, are expanded to.
DType ExpandedDType(DType stored, ComputeType compute_type);

// Expands the stored bytes of a matmul tensor's shard to panels of ExpandedDType, one panel a task.
// `target` is exactly as long as these and 64-byte aligned. Called where that is LoadedDType and
// not how the shard is stored.
void ExpandShard(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type,
                 std::span<const std::byte> stored, std::span<std::byte> target,
                 WorkerPool& workers);

// The view of a shard whose bytes, as ops read them, are at `data`.
WeightShardView LoadedShardView(const TensorEntry& tensor, size_t shard_index,
                                ComputeType compute_type, const std::byte* data);

}  // namespace nightshift
