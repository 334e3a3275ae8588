// Matmul by weights of integer groups, whose values are made in shared memory on the way.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_weight.h"
#include "kernels/cuda/launch.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda {

// MatMulArgs with the weight as kernels read it.
struct GroupMatMulArgs {
  MatrixView x;
  DeviceWeight weight;
  const float* bias = nullptr;  // of the whole matrix, or none
  MatrixView out;
  bool accumulate = false;
  bool rounds = false;            // inputs and weights to bf16
  bool has_tensor_cores = false;  // of bf16: compute capability 8.0 and later
};

// Each output is one sum in f32: from 0, k ascending, one fused multiply-add a k, then the bias,
// then what `out` held. However many rows there are, the bits of one are the same. Asynchronous on
// the launcher's stream.
void LaunchGroupMatMul(Launcher& launcher, const GroupMatMulArgs& args);

}  // namespace nightshift::cuda
