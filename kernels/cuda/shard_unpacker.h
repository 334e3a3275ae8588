// ShardUnpacker: turns uploaded weights of floats from the pack's panels into rows, in their place.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/copy_lane.h"
#include "kernels/cuda/resources.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda {

// Works on a copy lane's stream, behind the upload, so that no product reads a shard half turned.
class ShardUnpacker {
 public:
  // Memory for panels on their way: one of 32768 inputs in f32, four in bf16.
  static constexpr int64_t kBytes = int64_t{8} << 20;

  // Of the calling thread's device. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<ShardUnpacker> Create();
  // Each panel [K/2][64][2] becomes rows [64][K]; integer groups stay as they are. Returns when it
  // is done. Errors: INTERNAL.
  absl::Status Unpack(const WeightShardView& shard, CopyLane& lane);

 private:
  DeviceMemory turned_;
};

}  // namespace nightshift::cuda
