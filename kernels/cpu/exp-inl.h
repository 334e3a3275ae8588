// The exponential of attention weights and activations; included once per dispatch target, after
// foreach_target.h.
#if defined(KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_EXP_INL_H_
#undef KERNELS_CPU_EXP_INL_H_
#else
#define KERNELS_CPU_EXP_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// e^x for x <= 88, within an ulp; 0 where x < -87 (the result would be subnormal) or NaN.
// Half the steps of Highway's own, which also covers those.
// x = n ln 2 + r: the sum with 1.5 * 2^23 leaves the integer n in its low bits, which become the
// exponent of e^r. e^r = 1 + r + r^2 P(r), P fitted for the least relative error, 3e-9.
HWY_INLINE F32Vec ExpLanes(F32Vec x) {
  const F32Tag d;
  const auto shift = hn::Set(d, 12582912.0F);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), shift);
  const auto n = hn::Sub(shifted, shift);
  // ln 2 in two parts: n times the first is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  auto p = hn::Set(d, 1.381459878757596e-3F);
  p = hn::MulAdd(p, r, hn::Set(d, 8.368716575205326e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 4.166838899254799e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666652113199234F));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999999403953552F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  const U32Tag du;
  const auto bits = hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.0F)), hn::BitCast(d, bits));
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
