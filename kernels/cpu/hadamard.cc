#include "kernels/cpu/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hadamard.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// The butterflies at distances 1 to lanes / 2 of as many numbers as a vector holds.
HWY_INLINE F32Vec TransformLanes(F32Vec x) {
#if HWY_TARGET != HWY_SCALAR
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  const auto lane = hn::Iota(di, 0);
  const auto sign = hn::Set(di, INT32_MIN);
  for (int32_t distance = 1; distance < static_cast<int32_t>(LaneCount()); distance *= 2) {
    const auto bit = hn::Set(di, distance);
    const auto other = hn::TableLookupLanes(x, hn::IndicesFromVec(d, hn::Xor(lane, bit)));
    // The second of a pair is a - b = a + (-b).
    const auto is_second = hn::Eq(hn::And(lane, bit), bit);
    const auto flipped = hn::Xor(hn::BitCast(di, x), hn::IfThenElseZero(is_second, sign));
    x = hn::Add(other, hn::BitCast(d, flipped));
  }
#endif
  return x;
}

void TransformHead(int64_t width, int64_t block, float factor, float* head) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  int64_t distance = 1;
  if (block >= lanes) {
    for (int64_t i = 0; i < width; i += lanes) {
      hn::StoreU(TransformLanes(hn::LoadU(d, head + i)), d, head + i);
    }
    distance = lanes;
  }
  for (; distance < block; distance *= 2) {
    for (int64_t first = 0; first < width; first += 2 * distance) {
      if (distance < lanes) {
        for (int64_t i = first; i < first + distance; ++i) {
          const float a = head[i];
          const float b = head[i + distance];
          head[i] = a + b;
          head[i + distance] = a - b;
        }
        continue;
      }
      for (int64_t i = first; i < first + distance; i += lanes) {
        const auto a = hn::LoadU(d, head + i);
        const auto b = hn::LoadU(d, head + i + distance);
        hn::StoreU(hn::Add(a, b), d, head + i);
        hn::StoreU(hn::Sub(a, b), d, head + i + distance);
      }
    }
  }
  for (int64_t i = 0; i < width; i += lanes) {
    const int64_t count = std::min(lanes, width - i);
    StoreFirst(hn::Mul(LoadFirst(head + i, count), hn::Set(d, factor)), head + i, count);
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {
namespace {

HWY_EXPORT(TransformHead);

void Transform(int64_t width, int log, int power, float* head) {
  HWY_DYNAMIC_DISPATCH(TransformHead)(width, int64_t{1} << log, std::ldexp(1.0F, power), head);
}

int LogOfBlock(int64_t width) {
  return std::countr_zero(static_cast<uint64_t>(width));
}

}  // namespace

void TransformKey(int64_t width, float* head) {
  const int log = LogOfBlock(width);
  Transform(width, log, -(log / 2), head);
}

void TransformQuery(int64_t width, float* head) {
  const int log = LogOfBlock(width);
  Transform(width, log, log / 2 - log, head);
}

}  // namespace nightshift::cpu
#endif
