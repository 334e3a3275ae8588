#include "kernels/cpu/convert_simd.h"

#include <algorithm>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/panel_layout.h"

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

using I32Tag = hn::RebindToSigned<F32Tag>;

// The codes of LaneCount() neighbours, the first of them number `first`.
template <int kBits, bool kSigned>
HWY_INLINE hn::Vec<I32Tag> LoadCodes(const std::byte* codes, int64_t first) {
  if constexpr (kBits == 4) {
    const hn::Rebind<uint8_t, hn::Half<I32Tag>> bytes_tag;
    const hn::RepartitionToWide<hn::Rebind<uint8_t, I32Tag>> pairs_tag;
    const auto bytes = hn::LoadU(bytes_tag, reinterpret_cast<const uint8_t*>(codes + first / 2));
    const auto wide = hn::PromoteTo(pairs_tag, bytes);
    const auto low = hn::And(wide, hn::Set(pairs_tag, 0x0f));
    const auto high = hn::ShiftLeft<8>(hn::ShiftRight<4>(wide));
    return hn::PromoteTo(I32Tag(), hn::BitCast(hn::Rebind<uint8_t, I32Tag>(), hn::Or(low, high)));
  } else if constexpr (kSigned) {
    return hn::PromoteTo(I32Tag(), hn::LoadU(hn::Rebind<int8_t, I32Tag>(),
                                             reinterpret_cast<const int8_t*>(codes + first)));
  } else {
    return hn::PromoteTo(I32Tag(), hn::LoadU(hn::Rebind<uint8_t, I32Tag>(),
                                             reinterpret_cast<const uint8_t*>(codes + first)));
  }
}

template <int kBits, bool kSigned>
void ExpandCodesOf(const GroupCodes& group, const float* scales, const float* minimums,
                   int64_t pairs, float* target) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const auto zero = hn::Set(I32Tag(), group.zero);
  // Both codes of a pair have its output's scale and minimum.
  alignas(64) float of_pair[2][2 * kPanelOutputs];
  for (int64_t n = 0; n < kPanelOutputs; ++n) {
    of_pair[0][2 * n] = of_pair[0][2 * n + 1] = scales[n];
    of_pair[1][2 * n] = of_pair[1][2 * n + 1] = minimums == nullptr ? 0.0F : minimums[n];
  }
  for (int64_t column = 0; column < 2 * kPanelOutputs; column += lanes) {
    const auto scale = hn::Load(d, of_pair[0] + column);
    const auto minimum = hn::Load(d, of_pair[1] + column);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t first = pair * 2 * kPanelOutputs + column;
      const auto code = hn::Sub(LoadCodes<kBits, kSigned>(group.codes, first), zero);
      const auto product = hn::Mul(hn::ConvertTo(d, code), scale);
      hn::StoreU(minimums == nullptr ? product : hn::Add(product, minimum), d, target + first);
    }
  }
}

void ExpandCodesSimd(const GroupCodes& group, const float* scales, const float* minimums,
                     int64_t pairs, float* target) {
  const auto expand = group.bits == 4   ? ExpandCodesOf<4, false>
                      : group.is_signed ? ExpandCodesOf<8, true>
                                        : ExpandCodesOf<8, false>;
  expand(group, scales, minimums, pairs, target);
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
HWY_EXPORT(ExpandCodesSimd);

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

void ExpandCodes(const GroupCodes& group, const float* scales, const float* minimums, int64_t pairs,
                 float* target) {
  HWY_DYNAMIC_DISPATCH(ExpandCodesSimd)(group, scales, minimums, pairs, target);
}

}  // namespace nightshift::cpu
#endif
