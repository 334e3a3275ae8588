#include "kernels/cpu/convert_simd.h"

#include <algorithm>
#include <cstring>

#include "kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert_simd.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

using U16Tag = hn::Rebind<uint16_t, F32Tag>;

// 16-bit lanes at any address: packs and files align bytes, not elements.
HWY_INLINE hn::Vec<U16Tag> LoadU16(const std::byte* source) {
  alignas(64) uint16_t lanes[HWY_MAX_BYTES / sizeof(uint16_t)];
  std::memcpy(lanes, source, hn::Lanes(U16Tag()) * sizeof(uint16_t));
  return hn::Load(U16Tag(), lanes);
}

HWY_INLINE void StoreU16(hn::Vec<U16Tag> value, std::byte* target) {
  alignas(64) uint16_t lanes[HWY_MAX_BYTES / sizeof(uint16_t)];
  hn::Store(value, U16Tag(), lanes);
  std::memcpy(target, lanes, hn::Lanes(U16Tag()) * sizeof(uint16_t));
}

uint16_t LoadOneU16(const std::byte* source) {
  uint16_t bits = 0;
  std::memcpy(&bits, source, sizeof(bits));
  return bits;
}

void WidenBF16Span(const std::byte* source, int64_t count, float* target) {
  const F32Tag d;
  const U32Tag du;
  const int64_t lanes = LaneCount();
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, LoadU16(source + 2 * i)));
    hn::StoreU(hn::BitCast(d, bits), d, target + i);
  }
  for (; i < count; ++i) {
    target[i] = BF16ToF32(LoadOneU16(source + 2 * i));
  }
}

void RoundToBF16Span(const float* source, int64_t count, std::byte* target) {
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  const int64_t lanes = LaneCount();
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto rounded = RoundLanesThroughBF16(hn::LoadU(d, source + i));
    // In [0, 65535]: the saturating demotion keeps every bit.
    const auto bits = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(U32Tag(), rounded)));
    StoreU16(hn::DemoteTo(U16Tag(), bits), target + 2 * i);
  }
  for (; i < count; ++i) {
    const uint16_t bits = F32ToBF16(source[i]);
    std::memcpy(target + 2 * i, &bits, sizeof(bits));
  }
}

void RoundThroughBF16Span(const float* source, int64_t count, float* target) {
  const int64_t lanes = LaneCount();
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t part = std::min(lanes, count - i);
    StoreFirst(RoundLanesThroughBF16(LoadFirst(source + i, part)), target + i, part);
  }
}

// Below AVX2 Highway's own f16 arithmetic truncates and knows no infinities: go one by one.
void WidenF16Span(const std::byte* source, int64_t count, float* target) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  const F32Tag d;
  const hn::Rebind<hwy::float16_t, F32Tag> df16;
  const int64_t lanes = LaneCount();
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::PromoteTo(d, hn::BitCast(df16, LoadU16(source + 2 * i))), d, target + i);
  }
#endif
  for (; i < count; ++i) {
    target[i] = F16ToF32(LoadOneU16(source + 2 * i));
  }
}

void RoundToF16Span(const float* source, int64_t count, std::byte* target) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  const F32Tag d;
  const hn::Rebind<hwy::float16_t, F32Tag> df16;
  const int64_t lanes = LaneCount();
  for (; i + lanes <= count; i += lanes) {
    const auto rounded = hn::DemoteTo(df16, hn::LoadU(d, source + i));
    StoreU16(hn::BitCast(U16Tag(), rounded), target + 2 * i);
  }
#endif
  for (; i < count; ++i) {
    const uint16_t bits = F32ToF16(source[i]);
    std::memcpy(target + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(WidenF16Span);
HWY_EXPORT(WidenBF16Span);
HWY_EXPORT(RoundToF16Span);
HWY_EXPORT(RoundToBF16Span);
HWY_EXPORT(RoundThroughBF16Span);

void WidenF16(const std::byte* source, int64_t count, float* target) {
  HWY_DYNAMIC_DISPATCH(WidenF16Span)(source, count, target);
}

void WidenBF16(const std::byte* source, int64_t count, float* target) {
  HWY_DYNAMIC_DISPATCH(WidenBF16Span)(source, count, target);
}

void RoundToF16(const float* source, int64_t count, std::byte* target) {
  HWY_DYNAMIC_DISPATCH(RoundToF16Span)(source, count, target);
}

void RoundToBF16(const float* source, int64_t count, std::byte* target) {
  HWY_DYNAMIC_DISPATCH(RoundToBF16Span)(source, count, target);
}

void RoundThroughBF16(const float* source, int64_t count, float* target) {
  HWY_DYNAMIC_DISPATCH(RoundThroughBF16Span)(source, count, target);
}

}  // namespace nightshift::cpu
#endif
