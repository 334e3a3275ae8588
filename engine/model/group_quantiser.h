// Quantises weights to the integer groups of a pack: kernels/quantise_group.h says how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"

namespace nightshift {

// Quantises rows of finite values [rows][inputs], 1 to 64 of them, into one panel of a group type;
// padding is 0. `panel` is StoredPanelBytes(dtype, inputs) long.
void QuantisePanel(DType dtype, std::span<const float> values, int64_t rows, int64_t inputs,
                   std::span<std::byte> panel);

}  // namespace nightshift
