// Quantises weights to the integer groups of a pack.
//
// With lo and hi the least and largest value of a group, a the largest magnitude and L the largest
// code:
//   asymmetric (L = 15, 255): code = rint((x - lo) * L / (hi - lo)), 0 where hi == lo;
//     scale = f16((hi - lo) / L), minimum = f16(lo)
//   symmetric (L = 7, 127): code = rint(x * L / a), 0 where a == 0; scale = f16(a / L)
// in f64, rounded to nearest, ties to even; f16 saturates at its largest number, 65504. A group's
// range is that of its own values, however few.
//
// Nothing divides by zero or overflows. A value of the pack is off by at most
//   step / 2 + code * |scale - step| + |minimum - lo| + one rounding to f32
// where step is (hi - lo) / L or a / L before its rounding.
// Source: the asymmetric 4-bit form is FlexGen's (Sheng et al. 2023, group-wise quantisation), with
// the step stored in place of its reciprocal, which is infinite for constant groups and overflows
// for narrow ones. Reference: tests/data/make_group_oracles.py.
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
