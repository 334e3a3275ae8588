// Soft caps of scores and logits; included once per dispatch target, after simd-inl.h and
// math-inl.h.
#if defined(KERNELS_CPU_SOFT_CAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SOFT_CAP_INL_H_
#undef KERNELS_CPU_SOFT_CAP_INL_H_
#else
#define KERNELS_CPU_SOFT_CAP_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// cap * tanh(x / cap). NaN stays NaN.
HWY_INLINE F32Vec SoftCapLanes(F32Vec x, float cap) {
  const F32Tag d;
  const auto capped = hn::Mul(hn::Tanh(d, hn::Div(x, hn::Set(d, cap))), hn::Set(d, cap));
  return hn::IfThenElse(hn::IsNaN(x), x, capped);
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
