// The layout of matmul weights, [N/64][K/2][64][2]: where an element lies, and packing into it.
// N is padded to 64 and K to 32 with zeros (oneDNN's BA16a64b2a).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/tensor_view.h"

namespace nightshift {

// Element offset of weight (n, k) in panels of `padded_inputs` (a multiple of 32) inputs.
constexpr int64_t PanelOffset(int64_t n, int64_t k, int64_t padded_inputs) {
  return n / kPanelOutputs * kPanelOutputs * padded_inputs + k / 2 * (2 * kPanelOutputs) +
         n % kPanelOutputs * 2 + k % 2;
}

// Elements of a packed [outputs, inputs] matrix, padding included.
constexpr int64_t PanelElements(int64_t outputs, int64_t inputs) {
  return RoundUp(outputs, kPanelOutputs) * RoundUp(inputs, kInputsMultiple);
}

// Packs a row-major [outputs, inputs] matrix of a float type; writes the padding as zeros.
// `target` holds PanelElements(outputs, inputs) elements of the same type. The two must not
// overlap.
void PackPanels(const std::byte* source, DType dtype, int64_t outputs, int64_t inputs,
                std::byte* target);

}  // namespace nightshift
