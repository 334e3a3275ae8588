#include <algorithm>
#include <cmath>

#include "kernels/cpu/head_reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_tile.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include <hwy/contrib/math/math-inl.h>

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

float SumExpOfTileSimd(const float* logits, int64_t count, float max, float factor) {
  const F32Tag d;
  auto total = hn::Zero(d);
  for (int64_t i = 0; i < count; i += LaneCount()) {
    const int64_t part = std::min(LaneCount(), count - i);
    const auto is_real = hn::Lt(hn::Iota(d, 0.0F), hn::Set(d, static_cast<float>(part)));
    const auto shifted =
        hn::Mul(hn::Sub(LoadFirst(logits + i, part), hn::Set(d, max)), hn::Set(d, factor));
    // Exp maps NaN to 0 for being below its range: keep it, so that a broken row shows.
    const auto term = hn::IfThenElse(hn::IsNaN(shifted), shifted, hn::Exp(d, shifted));
    total = hn::Add(total, hn::IfThenElseZero(is_real, term));
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(MaxOfTileSimd);
HWY_EXPORT(SumExpOfTileSimd);

float MaxOfTile(const float* logits, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(MaxOfTileSimd)(logits, count);
}

float SumExpOfTile(const float* logits, int64_t count, float max, float factor) {
  return HWY_DYNAMIC_DISPATCH(SumExpOfTileSimd)(logits, count, max, factor);
}

}  // namespace nightshift::cpu
#endif
