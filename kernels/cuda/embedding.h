// Rows of a weight matrix, of any type that ops read.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_weight.h"
#include "kernels/cuda/launch.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda {

struct GatherArgs {
  DeviceWeight weight;
  const int32_t* ids = nullptr;  // [out.rows] on the device
  bool rounds = false;           // values of groups to bf16
  bool accumulate = false;
  MatrixView out;
};

// Those of the rows that the shard has; asynchronous on the launcher's stream.
void LaunchGather(Launcher& launcher, const GatherArgs& args);

}  // namespace nightshift::cuda
