// What the SIMD sources share; included once per dispatch target, after foreach_target.h.
// Kernels never let the compiler fuse a product and a sum by itself (-ffp-contract=off), so a
// fused operation is one that is written as MulAdd.
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SIMD_INL_H_
#undef KERNELS_CPU_SIMD_INL_H_
#else
#define KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using U32Tag = hn::RebindToUnsigned<F32Tag>;
using F32Vec = hn::Vec<F32Tag>;

HWY_INLINE int64_t LaneCount() {
  return static_cast<int64_t>(hn::Lanes(F32Tag()));
}

// The first `count` lanes from memory, zeros behind them; reads nothing beyond. count <= lanes.
HWY_INLINE F32Vec LoadFirst(const float* source, int64_t count) {
  const F32Tag d;
  if (count == LaneCount()) return hn::LoadU(d, source);
  alignas(64) float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(lanes, source, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void StoreFirst(F32Vec value, float* target, int64_t count) {
  const F32Tag d;
  if (count == LaneCount()) {
    hn::StoreU(value, d, target);
    return;
  }
  alignas(64) float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(value, d, lanes);
  std::memcpy(target, lanes, static_cast<size_t>(count) * sizeof(float));
}

// Rounds lanes to bf16, ties to even; the result is still f32. NaNs stay NaNs.
HWY_INLINE F32Vec RoundLanesThroughBF16(F32Vec value) {
  const F32Tag d;
  const U32Tag du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded =
      hn::And(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))), hn::Set(du, 0xffff0000U));
  const auto quiet = hn::And(hn::Or(bits, hn::Set(du, 0x400000)), hn::Set(du, 0xffff0000U));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, quiet), hn::BitCast(d, rounded));
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
