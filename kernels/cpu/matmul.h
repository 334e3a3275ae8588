// Matmul microkernels over the panel layout, by run-time dispatch.
#pragma once

#include <cstdint>

#include "kernels/tensor_view.h"

namespace nightshift::cpu {

// Calls are cut into multiples of this many rows: whole register tiles of every target (5 and 6).
inline constexpr int64_t kMatMulRowMultiple = 30;
// Rows of one call at most: the accumulators [rows][64] are scratch of the worker, 60 KiB.
inline constexpr int64_t kMaxMatMulRows = 8 * kMatMulRowMultiple;

// out[t, n] (+)= sum_k x[t, k] * weight[n, k] + bias[n] for the 64 outputs of one panel.
// Each sum starts at 0 and takes k in ascending order, one multiply-add each (fused where the
// target has it), whatever the number of rows; then the bias is added, then the old output.
// Shapes: x [T, K] with T <= kMaxMatMulRows; out [T, `outputs`], outputs <= 64.
struct PanelArgs {
  MatrixView x;
  const std::byte* panel = nullptr;  // [K/2][64][2] of weight_type
  DType weight_type = DType::kF32;
  const float* bias = nullptr;  // of the panel's first output, or none
  MatrixView out;
  bool accumulate = false;
  float* accumulators = nullptr;  // scratch [T][64], 64-byte aligned
};

void MultiplyPanel(const PanelArgs& args);

}  // namespace nightshift::cpu
