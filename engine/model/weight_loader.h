// Brings a pack's tensors into memory in the form that ops of one compute type read.
//
// f32: F32, F16 and BF16 weights stay as stored, quantised ones are expanded to F32.
// bf16: everything becomes BF16, rounded to nearest even; for quantised weights that is a second
// rounding after the quantisation (`model show` says so).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/pack.h"
#include "kernels/tensor_view.h"

namespace nightshift {

// The type that a matmul weight stored as `stored` has in memory.
DType LoadedDType(DType stored, ComputeType compute_type);

// Bytes of one shard, or of all shards of a matmul tensor, in memory: panels of 64 outputs, inputs
// padded to 32.
int64_t LoadedShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type);
int64_t LoadedBytes(const TensorEntry& tensor, ComputeType compute_type);

// Reads, verifies and expands one shard of a matmul tensor into `target`, which is exactly
// LoadedShardBytes long and 64-byte aligned. Thread-safe.
// Errors: DATA_LOSS naming tensor, shard and offset.
absl::Status LoadShard(const Pack& pack, const TensorEntry& tensor, size_t shard_index,
                       ComputeType compute_type, std::span<std::byte> target);

// The view of a shard that LoadShard wrote to `data`.
WeightShardView LoadedShardView(const TensorEntry& tensor, size_t shard_index,
                                ComputeType compute_type, const std::byte* data);

// A vector tensor (norm weight, bias) as f32 [N]. Errors: as LoadShard.
absl::StatusOr<std::vector<float>> LoadVector(const Pack& pack, const TensorEntry& tensor);

}  // namespace nightshift
