// Lays out a tile of keys and values for many queries: keys transposed, values widened or paired.
// Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_ATTENTION_LAYOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_LAYOUT_INL_H_
#undef KERNELS_CPU_ATTENTION_LAYOUT_INL_H_
#else
#define KERNELS_CPU_ATTENTION_LAYOUT_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/convert.h"
#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

template <typename T>
HWY_INLINE float Widen(T value) {
  if constexpr (sizeof(T) == 2) return BF16ToF32(value);
  return value;
}

#if HWY_TARGET != HWY_SCALAR
using F32x4Tag = hn::FixedTag<float, 4>;

HWY_INLINE hn::Vec<F32x4Tag> LoadFour(const float* source) {
  return hn::LoadU(F32x4Tag(), source);
}

HWY_INLINE hn::Vec<F32x4Tag> LoadFour(const uint16_t* source) {
  const F32x4Tag d;
  const hn::RebindToUnsigned<F32x4Tag> du;
  const hn::Rebind<uint16_t, F32x4Tag> du16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, source))));
}

// Blocks of four dimensions of rows 0, 4, 8 ...: as many as a vector holds.
template <typename T>
HWY_INLINE F32Vec LoadBlocks(const T* source, [[maybe_unused]] int64_t width) {
#if HWY_TARGET <= HWY_AVX3
  const hn::Half<F32Tag> half;
  const auto low = hn::Combine(half, LoadFour(source + 4 * width), LoadFour(source));
  const auto high = hn::Combine(half, LoadFour(source + 12 * width), LoadFour(source + 8 * width));
  return hn::Combine(F32Tag(), high, low);
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(F32Tag(), LoadFour(source + 4 * width), LoadFour(source));
#else
  return LoadFour(source);
#endif
}

// columns[d] = dimension d of as many keys as a vector holds, for 4 dimensions.
template <typename T>
HWY_INLINE void LoadColumns(const T* source, int64_t width, F32Vec (&columns)[4]) {
  const F32Tag d;
  const hn::Repartition<double, F32Tag> pairs;
  const auto a = LoadBlocks(source, width);
  const auto b = LoadBlocks(source + width, width);
  const auto c = LoadBlocks(source + 2 * width, width);
  const auto e = LoadBlocks(source + 3 * width, width);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  columns[0] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low));
  columns[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low));
  columns[2] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high));
  columns[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high));
}
#endif

// Fetches rows of `width` elements into the second-level cache; does nothing for null.
template <typename T>
HWY_INLINE void PrefetchRows(const T* ahead, int64_t row, int64_t rows, int64_t width) {
  if (ahead == nullptr) return;
  const auto* bytes = reinterpret_cast<const std::byte*>(ahead + row * width);
  for (int64_t i = 0; i < rows * width * static_cast<int64_t>(sizeof(T)); i += 64) {
    __builtin_prefetch(bytes + i, 0, 2);
  }
}

// target [D][64] = the first `count` keys of a page's [32][D], transposed. Keys behind them in
// the page may be moved too. Fetches the same rows of `ahead`.
template <typename T>
void TransposeKeys(const T* source, const T* ahead, int64_t count, int64_t width, float* target) {
  int64_t whole = 0;
#if HWY_TARGET != HWY_SCALAR
  whole = width / 4 * 4;
  const int64_t lanes = LaneCount();
  for (int64_t key = 0; key < count; key += lanes) {
    for (int64_t d = 0; d < whole; d += 4) {
      F32Vec columns[4];
      LoadColumns(source + key * width + d, width, columns);
      HWY_UNROLL(4) for (int64_t i = 0; i < 4; ++i) {
        hn::Store(columns[i], F32Tag(), target + (d + i) * kTileKeys + key);
      }
    }
    PrefetchRows(ahead, key, lanes, width);
  }
#else
  PrefetchRows(ahead, 0, count, width);
#endif
  for (int64_t key = 0; key < count; ++key) {
    for (int64_t d = whole; d < width; ++d) {
      target[d * kTileKeys + key] = Widen(source[key * width + d]);
    }
  }
}

HWY_INLINE F32Vec LoadValues(const float* source) {
  return hn::LoadU(F32Tag(), source);
}

HWY_INLINE F32Vec LoadValues(const uint16_t* source) {
  const U32Tag du;
  const hn::Rebind<uint16_t, F32Tag> du16;
  return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, source))));
}

// target [count][padded_width] = rows of a page's [32][D], zeros behind column D.
template <typename T>
void WidenValues(const T* source, const T* ahead, int64_t count, int64_t width,
                 int64_t padded_width, float* target) {
  const int64_t lanes = LaneCount();
  for (int64_t key = 0; key < count; ++key, source += width, target += padded_width) {
    PrefetchRows(ahead, key, 1, width);
    int64_t d = 0;
    for (; d + lanes <= width; d += lanes) {
      hn::Store(LoadValues(source + d), F32Tag(), target + d);
    }
    for (; d < width; ++d) {
      target[d] = Widen(source[d]);
    }
    for (; d < padded_width; ++d) {
      target[d] = 0.0F;
    }
  }
}

// Dots take pairs: of dimensions for a key, of keys for a dimension of the values. Below, a lane of
// 32 bits holds a pair.

// target [(D + 1) / 2][64] = the first `count` keys of a page's [32][D] as pairs of dimensions; an
// odd D gets a zero.
void PairKeys(const uint16_t* source, const uint16_t* ahead, int64_t count, int64_t width,
              float* target) {
  if (width % 2 == 0) {
    TransposeKeys(reinterpret_cast<const float*>(source), reinterpret_cast<const float*>(ahead),
                  count, width / 2, target);
    return;
  }
  for (int64_t key = 0; key < count; ++key, source += width) {
    for (int64_t d = 0; d < width; d += 2) {
      const uint32_t odd = d + 1 < width ? source[d + 1] : 0;
      target[d / 2 * kTileKeys + key] = std::bit_cast<float>(odd << 16 | source[d]);
    }
  }
}

// target [panels][32][64] = pairs of keys of a page's [32][D]; from `count` on a key may be
// anything of the page. Zeros behind column D.
void PairValues(const uint16_t* source, const uint16_t* ahead, int64_t count, int64_t width,
                float* target) {
  const U32Tag d32;
  const hn::Rebind<uint16_t, F32Tag> d16;
  const int64_t lanes = LaneCount();
  for (int64_t key = 0; key < count; key += 2, source += 2 * width, target += kPanelOutputs) {
    PrefetchRows(ahead, key, 2, width);
    for (int64_t d = 0; d < RoundUp(width, kPanelOutputs); d += lanes) {
      float* lane = target + d / kPanelOutputs * kTileKeys / 2 * kPanelOutputs + d % kPanelOutputs;
      if (d + lanes <= width) {
        const auto even = hn::PromoteTo(d32, hn::LoadU(d16, source + d));
        const auto odd = hn::PromoteTo(d32, hn::LoadU(d16, source + width + d));
        hn::Store(hn::BitCast(F32Tag(), hn::Or(even, hn::ShiftLeft<16>(odd))), F32Tag(), lane);
        continue;
      }
      for (int64_t i = 0; i < lanes; ++i) {
        const bool is_real = d + i < width;
        const uint32_t even = is_real ? source[d + i] : 0;
        const uint32_t odd = is_real ? source[width + d + i] : 0;
        lane[i] = std::bit_cast<float>(odd << 16 | even);
      }
    }
  }
}

// Lays out a tile's keys and values (of sparse rows: keys), without pages of which no key is seen.
// Meanwhile fetches the pages of the next tile: those of one head are short runs, which the caches
// do not see coming.
template <typename T>
void LoadPages(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  const int64_t width = task.args->layout.head_width;
  const int64_t padded_width = PaddedHeadWidth(*task.args);
  for (int64_t done = tile.hidden / kPagePositions * kPagePositions; done < tile.count;
       done += kPagePositions) {
    const int64_t page = (tile.first_key + done) / kPagePositions;
    const int64_t next = page + kTileKeys / kPagePositions;
    const bool is_last = next >= static_cast<int64_t>(task.span->pages.size());
    const T* next_keys = is_last ? nullptr : HeadRows<T>(task, 0, next, false);
    const T* next_values = is_last ? nullptr : HeadRows<T>(task, 0, next, true);
    const int64_t part = std::min(kPagePositions, tile.count - done);
    const T* keys = HeadRows<T>(task, 0, page, false);
    const T* values = HeadRows<T>(task, 0, page, true);
    if constexpr (sizeof(T) == 2) {
      if (task.uses_dots) {
        PairKeys(keys, next_keys, part, width, arrays.keys + done);
        if (task.is_sparse) continue;
        PairValues(values, next_values, part, width, arrays.values + done / 2 * kPanelOutputs);
        continue;
      }
    }
    TransposeKeys(keys, next_keys, part, width, arrays.keys + done);
    if (task.is_sparse) continue;
    WidenValues(values, next_values, part, width, padded_width,
                arrays.values + done * padded_width);
  }
}

void LoadTile(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  if (task.args->layout.dtype == DType::kF32) {
    LoadPages<float>(task, arrays, tile);
  } else {
    LoadPages<uint16_t>(task, arrays, tile);
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
