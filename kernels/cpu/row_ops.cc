#include "kernels/cpu/row_ops.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_ops.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/soft_cap-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Sum over the row of (x - shift)^2 as one f32; shift 0 for RMS.
float SumOfSquares(const float* x, int64_t columns, float shift) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const auto center = hn::Set(d, shift);
  auto total = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) {
    const auto value = hn::Sub(hn::LoadU(d, x + i), center);
    total = hn::MulAdd(value, value, total);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, total));
  for (; i < columns; ++i) {
    sum += (x[i] - shift) * (x[i] - shift);
  }
  return sum;
}

float Sum(const float* x, int64_t columns) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  auto total = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) {
    total = hn::Add(total, hn::LoadU(d, x + i));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, total));
  for (; i < columns; ++i) {
    sum += x[i];
  }
  return sum;
}

void RmsNormSimd(const float* x, const float* weight, float epsilon, int64_t columns, float* out) {
  const F32Tag d;
  const float mean = SumOfSquares(x, columns, 0.0F) / static_cast<float>(columns);
  const auto factor = hn::Set(d, 1.0F / std::sqrt(mean + epsilon));
  for (int64_t i = 0; i < columns; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), columns - i);
    const auto scaled = hn::Mul(LoadFirst(x + i, part), factor);
    StoreFirst(hn::Mul(scaled, LoadFirst(weight + i, part)), out + i, part);
  }
}

void LayerNormSimd(const float* x, const float* weight, const float* bias, float epsilon,
                   int64_t columns, float* out) {
  const F32Tag d;
  const float mean = Sum(x, columns) / static_cast<float>(columns);
  const float variance = SumOfSquares(x, columns, mean) / static_cast<float>(columns);
  const auto center = hn::Set(d, mean);
  const auto factor = hn::Set(d, 1.0F / std::sqrt(variance + epsilon));
  for (int64_t i = 0; i < columns; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), columns - i);
    const auto scaled = hn::Mul(hn::Sub(LoadFirst(x + i, part), center), factor);
    StoreFirst(hn::MulAdd(scaled, LoadFirst(weight + i, part), LoadFirst(bias + i, part)), out + i,
               part);
  }
}

HWY_INLINE F32Vec Silu(F32Vec x) {
  const F32Tag d;
  // Beyond 88 the result is below 1e-36; the bound keeps exp finite.
  const auto exponent = hn::Min(hn::Neg(x), hn::Set(d, 88.0F));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), ExpLanes(exponent)));
}

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x / (1 + exp(-2 u)).
HWY_INLINE F32Vec GeluTanh(F32Vec x) {
  const F32Tag d;
  const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715F), hn::Set(d, 1.0F));
  const auto twice_u = hn::Mul(hn::Mul(x, cubic), hn::Set(d, 1.5957691216057308F));
  const auto exponent = hn::Min(hn::Neg(twice_u), hn::Set(d, 88.0F));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), ExpLanes(exponent)));
}

// x Phi(x), with Phi(-|x|) = 0.5 erfc(z) and z = |x| / sqrt(2).
// erfc(z) exp(z^2) = t P(t) with t = 1 / (1 + 0.35 z); P is the Chebyshev fit of degree 8 on
// z in [0, 7], relative error below 2e-8 before rounding.
HWY_INLINE F32Vec GeluErf(F32Vec x) {
  const F32Tag d;
  const auto one = hn::Set(d, 1.0F);
  const auto z = hn::Min(hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678F)), hn::Set(d, 9.0F));
  const auto t = hn::Div(one, hn::MulAdd(z, hn::Set(d, 0.35F), one));
  constexpr float kCoefficients[] = {0.0643240802F, -0.384488952F, 0.792433779F,
                                     -0.660849922F, 0.590581117F,  -0.0208850673F,
                                     0.229691426F,  0.191363986F,  0.197829547F};
  auto p = hn::Set(d, kCoefficients[0]);
  for (size_t i = 1; i < std::size(kCoefficients); ++i) {
    p = hn::MulAdd(p, t, hn::Set(d, kCoefficients[i]));
  }
  const auto tail =
      hn::Mul(hn::Mul(hn::Set(d, 0.5F), hn::Mul(t, p)), ExpLanes(hn::Neg(hn::Mul(z, z))));
  const auto phi = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  return hn::Mul(x, phi);
}

template <Activation kActivation>
HWY_INLINE F32Vec Apply(F32Vec x) {
  if constexpr (kActivation == Activation::kRelu) {
    return hn::Max(x, hn::Zero(F32Tag()));
  } else if constexpr (kActivation == Activation::kSilu) {
    return Silu(x);
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    return GeluTanh(x);
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return GeluErf(x);
  } else {
    return x;
  }
}

template <Activation kActivation>
void ActivateColumns(float* x, const float* up, int64_t columns) {
  for (int64_t i = 0; i < columns; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), columns - i);
    auto value = Apply<kActivation>(LoadFirst(x + i, part));
    if (up != nullptr) value = hn::Mul(value, LoadFirst(up + i, part));
    StoreFirst(value, x + i, part);
  }
}

void ActivateSimd(Activation activation, float* x, const float* up, int64_t columns) {
  switch (activation) {
    case Activation::kNone:
      return ActivateColumns<Activation::kNone>(x, up, columns);
    case Activation::kRelu:
      return ActivateColumns<Activation::kRelu>(x, up, columns);
    case Activation::kSilu:
      return ActivateColumns<Activation::kSilu>(x, up, columns);
    case Activation::kGeluTanh:
      return ActivateColumns<Activation::kGeluTanh>(x, up, columns);
    case Activation::kGeluErf:
      return ActivateColumns<Activation::kGeluErf>(x, up, columns);
  }
}

void ScaleSimd(float factor, int64_t columns, float* x) {
  const auto scale = hn::Set(F32Tag(), factor);
  for (int64_t i = 0; i < columns; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), columns - i);
    StoreFirst(hn::Mul(LoadFirst(x + i, part), scale), x + i, part);
  }
}

void AddScaledSimd(const float* x, float factor, int64_t columns, float* out) {
  const auto scale = hn::Set(F32Tag(), factor);
  for (int64_t i = 0; i < columns; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), columns - i);
    StoreFirst(hn::MulAdd(LoadFirst(x + i, part), scale, LoadFirst(out + i, part)), out + i, part);
  }
}

void SoftCapSimd(float cap, int64_t columns, float* x) {
  for (int64_t i = 0; i < columns; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), columns - i);
    StoreFirst(SoftCapLanes(LoadFirst(x + i, part), cap), x + i, part);
  }
}

void RotateHeadSimd(float* head, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), pairs - i);
    const auto cosine = LoadFirst(cosines + i, part);
    const auto sine = LoadFirst(sines + i, part);
    const auto low = LoadFirst(head + i, part);
    const auto high = LoadFirst(head + pairs + i, part);
    StoreFirst(hn::Sub(hn::Mul(low, cosine), hn::Mul(high, sine)), head + i, part);
    StoreFirst(hn::Add(hn::Mul(high, cosine), hn::Mul(low, sine)), head + pairs + i, part);
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(RmsNormSimd);
HWY_EXPORT(LayerNormSimd);
HWY_EXPORT(ActivateSimd);
HWY_EXPORT(ScaleSimd);
HWY_EXPORT(AddScaledSimd);
HWY_EXPORT(SoftCapSimd);
HWY_EXPORT(RotateHeadSimd);

void RmsNormRow(const float* x, const float* weight, float epsilon, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormSimd)(x, weight, epsilon, columns, out);
}

void LayerNormRow(const float* x, const float* weight, const float* bias, float epsilon,
                  int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNormSimd)(x, weight, bias, epsilon, columns, out);
}

void ActivateRow(Activation activation, float* x, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(ActivateSimd)(activation, x, nullptr, columns);
}

void GatedActivateRow(Activation activation, float* gate, const float* up, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(ActivateSimd)(activation, gate, up, columns);
}

void ScaleRow(float factor, int64_t columns, float* x) {
  HWY_DYNAMIC_DISPATCH(ScaleSimd)(factor, columns, x);
}

void AddScaledRow(const float* x, float factor, int64_t columns, float* out) {
  HWY_DYNAMIC_DISPATCH(AddScaledSimd)(x, factor, columns, out);
}

void SoftCapRow(float cap, int64_t columns, float* x) {
  HWY_DYNAMIC_DISPATCH(SoftCapSimd)(cap, columns, x);
}

void RotateHead(float* head, const float* cosines, const float* sines, int64_t pairs) {
  HWY_DYNAMIC_DISPATCH(RotateHeadSimd)(head, cosines, sines, pairs);
}

}  // namespace nightshift::cpu
#endif
