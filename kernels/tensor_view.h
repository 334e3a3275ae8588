// Views of memory that ops read and write, and the letters of shape comments:
// B batch, T tokens, E model width, H query heads, G kv heads, D head width, F ffn width,
// V vocabulary, L layers, N outputs and K inputs of a matmul.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"

namespace nightshift {

// A row-major f32 matrix of activations [rows, columns]; rows are `stride` elements apart.
struct MatrixView {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  float* row(int64_t index) const { return data + index * stride; }
  // Rows [first, first + count).
  MatrixView Rows(int64_t first, int64_t count) const {
    return {data + first * stride, count, columns, stride};
  }
  // Columns [first, first + count) of every row.
  MatrixView Columns(int64_t first, int64_t count) const {
    return {data + first, rows, count, stride};
  }
};

// Layout constants of matmul weights: [N/64][K/2][64][2], N padded to 64 and K to 32 with zeros.
// The same for every CPU and the GPU (oneDNN's BA16a64b2a).
inline constexpr int64_t kPanelOutputs = 64;
inline constexpr int64_t kInputsMultiple = 32;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Whole panels of 64 output rows of one matmul weight, in the layout above, of a float type or of
// integer groups (group_format.h).
struct WeightShardView {
  const std::byte* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kF32;
  int64_t first_output = 0;  // row of the whole matrix, a multiple of 64
  int64_t outputs = 0;       // real rows here, without padding
  int64_t inputs = 0;        // K, without padding

  bool Has(int64_t output) const {
    return output >= first_output && output < first_output + outputs;
  }
  int64_t padded_inputs() const { return RoundUp(inputs, kInputsMultiple); }
  int64_t panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
};

// A whole matmul weight [N, K] as its shards in order of first_output.
struct WeightView {
  int64_t outputs = 0;
  int64_t inputs = 0;
  std::span<const WeightShardView> shards;
};

}  // namespace nightshift
