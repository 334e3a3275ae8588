#include "kernels/convert.h"

#include <cstring>

#include "kernels/base/check.h"
#include "kernels/cpu/convert_simd.h"

namespace nightshift {

float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  }
  // 65520 lies halfway between the largest f16, 65504, and the next power of two.
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    // Below 2^-14: adding 0.5 lets the FPU round to the 2^-24 grid of the subnormals.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

void WidenToF32(DType source_type, const std::byte* source, int64_t count, float* target) {
  CHECK(IsFloat(source_type));
  if (source_type == DType::kF32) {
    if (count > 0) std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
  } else if (source_type == DType::kF16) {
    cpu::WidenF16(source, count, target);
  } else {
    cpu::WidenBF16(source, count, target);
  }
}

void RoundFromF32(const float* source, int64_t count, DType target_type, std::byte* target) {
  CHECK(IsFloat(target_type));
  if (target_type == DType::kF32) {
    if (count > 0) std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
  } else if (target_type == DType::kF16) {
    cpu::RoundToF16(source, count, target);
  } else {
    cpu::RoundToBF16(source, count, target);
  }
}

void ExpandCodes(const GroupCodes& group, const float* scales, const float* minimums, int64_t pairs,
                 float* target) {
  cpu::ExpandCodes(group, scales, minimums, pairs, target);
}

}  // namespace nightshift
