// Of kernels/quantise_group.h.
#include "kernels/quantise_group.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/base/check.h"
#include "kernels/convert.h"
#include "kernels/tensor_view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantise_group.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

using F64Tag = hn::ScalableTag<double>;
// As many f32 as a vector of f64 has lanes.
using F32PartTag = hn::Rebind<float, F64Tag>;
using I32PartTag = hn::Rebind<int32_t, F64Tag>;

// rint((x - low) * levels / spread) of `count` values, a multiple of the lanes.
void CodesOf(const float* values, int64_t count, double low, double levels, double spread,
             int32_t* codes) {
  const F64Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // Nearest integer, ties to even, of a magnitude below 2^51: the sum has no bits left for
  // fractions.
  const auto shift = hn::Set(d, 0x1.8p52);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto x = hn::PromoteTo(d, hn::Load(F32PartTag(), values + i));
    const auto offset = hn::Mul(hn::Sub(x, hn::Set(d, low)), hn::Set(d, levels));
    const auto code = hn::Div(offset, hn::Set(d, spread));
    const auto rounded = hn::Sub(hn::Add(code, shift), shift);
    hn::Store(hn::DemoteTo(I32PartTag(), rounded), I32PartTag(), codes + i);
  }
}

// Finds the least and the largest; false if one is not finite.
bool FindExtremes(const float* values, int64_t count, float* lowest, float* highest) {
  const F32Tag d;
  auto low = hn::Load(d, values);
  auto high = low;
  // A NaN or an infinity less itself is NaN, and stays in a sum.
  auto zeros = hn::Sub(low, low);
  for (int64_t i = LaneCount(); i < count; i += LaneCount()) {
    const auto x = hn::Load(d, values + i);
    low = hn::Min(low, x);
    high = hn::Max(high, x);
    zeros = hn::Add(zeros, hn::Sub(x, x));
  }
  *lowest = hn::GetLane(hn::MinOfLanes(d, low));
  *highest = hn::GetLane(hn::MaxOfLanes(d, high));
  return hn::GetLane(hn::SumOfLanes(d, zeros)) == 0.0F;
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift {
namespace cpu {
namespace {

HWY_EXPORT(CodesOf);
HWY_EXPORT(FindExtremes);

constexpr uint16_t kHalfNaN = 0x7e00;

// To f16 with one rounding, which F32ToF16 of a rounded f32 would not be; saturates.
uint16_t ToHalf(double value) {
  constexpr double kLargest = 65504.0;
  const double magnitude = std::min(std::abs(value), kLargest);
  // Neighbours of f16 are 2^-10 of their power of two apart, from 2^-14 down 2^-24. A sum with
  // 1.5 times 2^52 of that has no bits left below it.
  const uint64_t power = std::bit_cast<uint64_t>(std::max(magnitude, 0x1p-14)) >> 52;
  const double shift = std::bit_cast<double>((power + 42) << 52) * 1.5;
  const double rounded = magnitude + shift - shift;
  return F32ToF16(static_cast<float>(std::copysign(rounded, value)));
}

GroupNumbers Quantise(const GroupFormat& format, const float* values, int64_t count,
                      uint8_t* codes) {
  CHECK(count >= 1 && count <= format.group && format.group <= 64);
  // Whole vectors: what is missing repeats the first value, which changes no range.
  alignas(64) float padded[64];
  std::copy_n(values, count, padded);
  const int64_t whole = RoundUp(count, 16);
  std::fill(padded + count, padded + whole, values[0]);
  float least = 0.0F;
  float most = 0.0F;
  if (!HWY_DYNAMIC_DISPATCH(FindExtremes)(padded, whole, &least, &most)) {
    std::fill_n(codes, count, uint8_t{0});
    return {kHalfNaN, kHalfNaN};
  }
  // +0 of zeros of both signs.
  const double lowest = static_cast<double>(least) + 0.0;
  const double highest = static_cast<double>(most) + 0.0;
  const double low = format.has_minimum ? lowest : 0.0;
  const double spread =
      format.has_minimum ? highest - lowest : std::max(std::abs(lowest), std::abs(highest));
  const double levels = format.has_minimum ? (1 << format.bits) - 1 : (1 << (format.bits - 1)) - 1;
  alignas(64) int32_t wide[64] = {};
  if (spread > 0.0) {
    HWY_DYNAMIC_DISPATCH(CodesOf)(padded, whole, low, levels, spread, wide);
  }
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(wide[i] + format.zero);
  }
  return {ToHalf(spread / levels), format.has_minimum ? ToHalf(low) : uint16_t{0}};
}

}  // namespace
}  // namespace cpu

GroupNumbers QuantiseGroup(const GroupFormat& format, const float* values, int64_t count,
                           uint8_t* codes) {
  return cpu::Quantise(format, values, count, codes);
}

}  // namespace nightshift
#endif
