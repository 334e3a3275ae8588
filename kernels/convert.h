// Conversions between f32 and the 16-bit float types, rounding to nearest, ties to even; integer
// codes of quantised weights to f32.
// Infinities stay, what is too large becomes one, NaNs stay (quiet) NaNs, subnormals are kept.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace nightshift {

inline float BF16ToF32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float F16ToF32(uint16_t bits);
uint16_t F32ToF16(float value);

// Widens `count` elements of a float type to f32 (a copy for kF32). No alignment is needed; the
// two must not overlap. One thread; callers split long arrays.
void WidenToF32(DType source_type, const std::byte* source, int64_t count, float* target);

// Rounds `count` f32 elements to a float type (a copy for kF32). As above.
void RoundFromF32(const float* source, int64_t count, DType target_type, std::byte* target);

// Codes of a group-quantised weight as the 64 outputs of a panel lie, [pairs][64][2].
struct GroupCodes {
  const std::byte* codes = nullptr;
  int bits = 8;            // 4: two codes a byte, the first in the low half
  bool is_signed = false;  // of 8 bits: signed bytes
  int zero = 0;            // taken from each code
};
// scale * (code - zero) + minimum to f32, [pairs][64][2]. `scales` and `minimums` (or nullptr:
// none) are the 64 of all these pairs. The product is exact where scales were f16: codes have 8
// bits.
void ExpandCodes(const GroupCodes& group, const float* scales, const float* minimums, int64_t pairs,
                 float* target);

}  // namespace nightshift
