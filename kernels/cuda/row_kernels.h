// Norms, rotation, activations and what else looks at one row at a time, on device memory.
// Shapes and meaning: kernels/ops.h. All are asynchronous on the launcher's stream.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

namespace nightshift::cuda {

// Each of the `heads` equal parts of a row is a row of its own; 1 elsewhere.
struct NormArgs {
  MatrixView x;
  MatrixView out;
  int64_t heads = 1;
  const float* weight = nullptr;
  const float* bias = nullptr;  // LayerNorm's
  float epsilon = 0.0F;
};
void LaunchRmsNorm(Launcher& launcher, const NormArgs& args);
void LaunchLayerNorm(Launcher& launcher, const NormArgs& args);

// RopeArgs with its arrays on the device.
struct DeviceRopeArgs {
  MatrixView x;
  int64_t heads = 0;
  int64_t head_width = 0;
  const float* inverse_frequencies = nullptr;  // [pairs]
  int64_t pairs = 0;
  float magnitude = 1.0F;
  const int32_t* positions = nullptr;  // [T]
};
void LaunchRope(Launcher& launcher, const DeviceRopeArgs& args);

// x = activation(x), times `up` unless that has no data.
void LaunchActivate(Launcher& launcher, Activation activation, MatrixView x, MatrixView up);
void LaunchScale(Launcher& launcher, float factor, MatrixView x);
void LaunchAddScaled(Launcher& launcher, MatrixView x, float factor, MatrixView out);
void LaunchSoftCap(Launcher& launcher, float cap, MatrixView x);
// `rows` and `factors` [x.rows] on the device.
void LaunchAddScaledRows(Launcher& launcher, MatrixView x, const int64_t* rows,
                         const float* factors, MatrixView out);
// `rows` [out.rows] on the device.
void LaunchGatherRows(Launcher& launcher, MatrixView x, const int64_t* rows, MatrixView out);

}  // namespace nightshift::cuda
