#include <algorithm>
#include <cmath>

#include "kernels/cpu/head_reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_tile.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

float MaxOfTileSimd(const float* logits, int64_t count) {
  const F32Tag d;
  auto max = hn::Set(d, -INFINITY);
  int64_t i = 0;
  for (; i + LaneCount() <= count; i += LaneCount()) {
    const auto value = hn::LoadU(d, logits + i);
    max = hn::IfThenElse(hn::Gt(value, max), value, max);
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, max));
  for (; i < count; ++i) {
    if (logits[i] > result) result = logits[i];
  }
  return result;
}

// The lanes of terms in [0, part), exponentials; NaNs stay.
HWY_INLINE F32Vec ExpOfLogits(F32Vec shifted, F32Vec factor) {
  const auto exponent = hn::Mul(shifted, factor);
  // Exp maps NaN to 0 for being below its range: keep it, so that a broken row shows.
  return hn::IfThenElse(hn::IsNaN(exponent), exponent, ExpLanes(exponent));
}

TileSums SumExpsOfTileSimd(const float* logits, int64_t count, float max, float factor) {
  const F32Tag d;
  const auto one = hn::Set(d, 1.0F);
  const auto tempering = hn::Set(d, factor);
  const bool is_tempered = factor > 0.0F && factor != 1.0F;
  auto total = hn::Zero(d);
  auto tempered = hn::Zero(d);
  for (int64_t i = 0; i < count; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), count - i);
    const auto shifted = hn::Sub(LoadFirst(logits + i, part), hn::Set(d, max));
    const auto is_real = hn::Lt(hn::Iota(d, 0.0F), hn::Set(d, static_cast<float>(part)));
    total = hn::Add(total, hn::IfThenElseZero(is_real, ExpOfLogits(shifted, one)));
    if (is_tempered) {
      tempered = hn::Add(tempered, hn::IfThenElseZero(is_real, ExpOfLogits(shifted, tempering)));
    }
  }
  const float sum = hn::GetLane(hn::SumOfLanes(d, total));
  return {.plain = sum, .tempered = is_tempered ? hn::GetLane(hn::SumOfLanes(d, tempered)) : sum};
}

#if HWY_TARGET != HWY_SCALAR
using U64Tag = hn::ScalableTag<uint64_t>;
using U64Vec = hn::Vec<U64Tag>;
using F64Tag = hn::RebindToFloat<U64Tag>;

HWY_INLINE U64Vec MultiplyLow(U64Vec a, uint64_t b) {
  const U64Tag d;
#if HWY_TARGET <= HWY_AVX3
  return hn::Mul(a, hn::Set(d, b));
#else
  const hn::Repartition<uint32_t, U64Tag> d32;
  const auto product = [&](U64Vec x, uint64_t y) HWY_ATTR {
    return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d, y)));
  };
  const auto cross = hn::Add(product(hn::ShiftRight<32>(a), b), product(a, b >> 32));
  return hn::Add(product(a, b), hn::ShiftLeft<32>(cross));
#endif
}

// An upper bound of the noise of the tokens after state `x` of UniformAt: -log(-log u) is at most
// -log(1 - u), and 1 - u at least the power of two of its exponent.
HWY_INLINE hn::Vec<F64Tag> NoiseBounds(U64Vec x) {
  const U64Tag d;
  const F64Tag df;
  x = MultiplyLow(hn::Xor(x, hn::ShiftRight<30>(x)), 0xbf58476d1ce4e5b9U);
  x = MultiplyLow(hn::Xor(x, hn::ShiftRight<27>(x)), 0x94d049bb133111ebU);
  x = hn::Xor(x, hn::ShiftRight<31>(x));
  // (1 - u) 2^52 = m + 0.5 with the 52 bits m; as the fraction of a double m stands for 2^52 + m.
  const auto m = hn::AndNot(hn::ShiftRight<12>(x), hn::Set(d, (uint64_t{1} << 52) - 1));
  const auto shifted = hn::BitCast(df, hn::Or(m, hn::Set(d, uint64_t{0x433} << 52)));
  const auto rest = hn::Sub(shifted, hn::Set(df, 0x1p52 - 0.5));
  const auto exponent = hn::ShiftRight<52>(hn::BitCast(d, rest));
  // Small integers become doubles in the same way.
  const auto wide = hn::BitCast(df, hn::Or(exponent, hn::Set(d, uint64_t{0x433} << 52)));
  const auto below_one = hn::Sub(hn::Set(df, 0x1p52 + 1023 + 52), wide);
  return hn::Mul(below_one, hn::Set(df, 0.6931472));
}
#endif

int64_t NextContenderSimd([[maybe_unused]] const ContenderArgs& args, int64_t index) {
#if HWY_TARGET != HWY_SCALAR
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15U;  // of UniformAt
  const U64Tag d;
  const F64Tag df;
  const hn::Rebind<float, F64Tag> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto steps = MultiplyLow(hn::Iota(d, 1), kStep);
  // More than f32 rounds away, of the noise, of the logit by the temperature and of their sum.
  const double slack = 0.01 + 1e-6 * std::abs(static_cast<double>(args.best_noisy));
  const auto least = hn::Set(df, static_cast<double>(args.best_noisy) - slack);
  const auto factor = hn::Set(half, 1.0F / args.temperature);
  for (; index + lanes <= args.count; index += lanes) {
    const auto token = static_cast<uint64_t>(args.first_token + index);
    const auto bounds = NoiseBounds(hn::Add(steps, hn::Set(d, args.noise_key + token * kStep)));
    const auto logits = hn::Mul(hn::LoadU(half, args.logits + index), factor);
    const auto must_lose = hn::Le(hn::Add(hn::PromoteTo(df, logits), bounds), least);
    if (!hn::AllTrue(df, must_lose)) return index + hn::FindFirstTrue(df, hn::Not(must_lose));
  }
#endif
  return index;
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(MaxOfTileSimd);
HWY_EXPORT(SumExpsOfTileSimd);
HWY_EXPORT(NextContenderSimd);

float MaxOfTile(const float* logits, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(MaxOfTileSimd)(logits, count);
}

TileSums SumExpsOfTile(const float* logits, int64_t count, float max, float factor) {
  return HWY_DYNAMIC_DISPATCH(SumExpsOfTileSimd)(logits, count, max, factor);
}

int64_t NextContender(const ContenderArgs& args, int64_t index) {
  return HWY_DYNAMIC_DISPATCH(NextContenderSimd)(args, index);
}

}  // namespace nightshift::cpu
#endif
