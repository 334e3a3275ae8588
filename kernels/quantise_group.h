// Quantises one group of values: weights when a pack is made, keys and values when they are
// appended to their page.
//
// With lo and hi the least and largest value of a group, a the largest magnitude and L the largest
// code:
//   asymmetric (L = 15, 255): code = rint((x - lo) * L / (hi - lo)), 0 where hi == lo;
//     scale = f16((hi - lo) / L), minimum = f16(lo)
//   symmetric (L = 7, 127): code = rint(x * L / a), 0 where a == 0; scale = f16(a / L)
// in f64, rounded to nearest, ties to even; f16 saturates at its largest number, 65504. A group's
// range is that of its own values, however few. The same bits on every instruction set.
//
// Nothing divides by zero or overflows. What a code stands for is off by at most
//   step / 2 + code * |scale - step| + |minimum - lo| + one rounding to f32
// where step is (hi - lo) / L or a / L before its rounding.
// Source: the asymmetric 4-bit form is FlexGen's (Sheng et al. 2023, group-wise quantisation), with
// the step stored in place of its reciprocal, which is infinite for constant groups and overflows
// for narrow ones. Reference: tests/data/make_group_oracles.py.
#pragma once

#include <cstdint>

#include "kernels/group_format.h"

namespace nightshift {

// fp16.
struct GroupNumbers {
  uint16_t scale = 0;
  uint16_t minimum = 0;  // 0 in symmetric types
};

// Writes `count` codes (1 to format.group, the type's zero added) as bytes. A value that is not
// finite makes both numbers NaN, so that all of its group is, and codes 0.
GroupNumbers QuantiseGroup(const GroupFormat& format, const float* values, int64_t count,
                           uint8_t* codes);

}  // namespace nightshift
