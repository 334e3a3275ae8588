#include "kernels/cpu/attention.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/convert_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/soft_cap-inl.h"

#ifndef KERNELS_CPU_ATTENTION_SCRATCH_
#define KERNELS_CPU_ATTENTION_SCRATCH_
namespace nightshift::cpu {
namespace {

// Head widths are padded to whole vectors of every target.
int64_t PaddedHeadWidth(const AttentionArgs& args) {
  return RoundUp(args.layout.head_width, 16);
}

// The first key that a query at `position` sees.
int64_t FirstVisibleKey(const AttentionArgs& args, int64_t position) {
  return args.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - args.window);
}

int64_t GroupHeads(const AttentionArgs& args) {
  return args.num_heads / args.layout.kv_heads;
}

// Outputs of a query lie in panels: one of the padded head width, or with dots as many of 64 as the
// width takes.
int64_t PanelWidth(const AttentionTask& task) {
  return task.uses_dots ? kPanelOutputs : PaddedHeadWidth(*task.args);
}

int64_t NumPanels(const AttentionTask& task) {
  return task.uses_dots ? RoundUp(task.args->layout.head_width, kPanelOutputs) / kPanelOutputs : 1;
}

// The arrays of one task, carved from its scratch. Q = rows x heads of the group, row-major. W is
// the padded head width, of a panel PanelWidth; with dots all inputs are pairs of bf16.
struct TaskArrays {
  TaskArrays(const AttentionTask& task, int64_t queries, float* scratch) {
    const int64_t width = NumPanels(task) * PanelWidth(task);
    queries = RoundUp(queries, 16);
    keys = scratch;
    values = keys + width * kTileKeys;
    q = values + width * kTileKeys;
    scores = q + queries * width;
    weights = scores + queries * kTileKeys;
    tile_out = weights + queries * kTileKeys / 2;
    out = tile_out + queries * width;
    max_score = out + queries * width;
    tile_max = max_score + queries;
    sum = tile_max + queries;
    tile_sum = sum + queries;
  }
  static int64_t Floats(const AttentionTask& task, int64_t queries) {
    const int64_t width = NumPanels(task) * PanelWidth(task);
    return 2 * width * kTileKeys + RoundUp(queries, 16) * (3 * width + 3 * kTileKeys / 2 + 4);
  }

  float* keys;       // [D][64], transposed; dots: [D/2][64][2]
  float* values;     // [64][W]; dots: [W/64][32][64][2]
  float* q;          // [Q][W]; dots: [W/64][Q][64]
  float* scores;     // [Q][64], then weights exp(score - tile_max)
  float* weights;    // dots: [Q][64], the same as bf16
  float* tile_out;   // [panels][Q][panel width]
  float* out;        // [panels][Q][panel width]
  float* max_score;  // [Q] of all tiles so far
  float* tile_max;   // [Q]; then the factor of the tile
  float* sum;        // [Q] of weights, of all tiles so far
  float* tile_sum;   // [Q]; then the factor of what is merged so far
};

}  // namespace
}  // namespace nightshift::cpu
#endif

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

// target[d][key] = source[key][d] for 4 dimensions of as many keys as a vector holds.
template <typename T>
HWY_INLINE void TransposeFour(const T* source, int64_t width, float* target) {
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
  const auto store = [&](auto columns, int64_t i) HWY_ATTR {
    hn::Store(hn::BitCast(d, columns), d, target + i * kTileKeys);
  };
  store(hn::InterleaveLower(pairs, ab_low, ce_low), 0);
  store(hn::InterleaveUpper(pairs, ab_low, ce_low), 1);
  store(hn::InterleaveLower(pairs, ab_high, ce_high), 2);
  store(hn::InterleaveUpper(pairs, ab_high, ce_high), 3);
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
      TransposeFour(source + key * width + d, width, target + d * kTileKeys + key);
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

// out[r][n] = sum over i ascending of a[r][i] * b[i][n], i in [0, count).
// kRows rows of a (a_stride apart), kVectors vectors of columns of b (b_stride apart).
template <int kRows, int kVectors>
HWY_INLINE void MultiplyTile(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                             int64_t count, float* out, int64_t out_stride) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  F32Vec sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Zero(d);
    }
  }
  for (int64_t i = 0; i < count; ++i, b += b_stride) {
    F32Vec row[kVectors];
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      row[v] = hn::Load(d, b + v * lanes);
    }
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, a[r * a_stride + i]);
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(factor, row[v], sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * out_stride + v * lanes);
    }
  }
}

#if HWY_TARGET <= HWY_AVX3
constexpr int kWideVectors = 4;
#else
constexpr int kWideVectors = 2;
#endif

// All `columns` (whole vectors) of kRows rows.
template <int kRows>
void MultiplyRows(const float* a, int64_t a_stride, const float* b, int64_t columns, int64_t count,
                  float* out) {
  const int64_t lanes = LaneCount();
  int64_t n = 0;
  for (; n + kWideVectors * lanes <= columns; n += kWideVectors * lanes) {
    MultiplyTile<kRows, kWideVectors>(a, a_stride, b + n, columns, count, out + n, columns);
  }
  for (; n < columns; n += lanes) {
    MultiplyTile<kRows, 1>(a, a_stride, b + n, columns, count, out + n, columns);
  }
}

void Multiply(const float* a, int64_t a_stride, int64_t rows, const float* b, int64_t columns,
              int64_t count, float* out) {
  int64_t row = 0;
  for (; rows - row >= 6; row += 6) {
    MultiplyRows<6>(a + row * a_stride, a_stride, b, columns, count, out + row * columns);
  }
  for (; rows - row >= 3; row += 3) {
    MultiplyRows<3>(a + row * a_stride, a_stride, b, columns, count, out + row * columns);
  }
  for (; row < rows; ++row) {
    MultiplyRows<1>(a + row * a_stride, a_stride, b, columns, count, out + row * columns);
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

// The rows of the task's kv head in one page: keys, or values.
template <typename T>
const T* HeadRows(const AttentionTask& task, int64_t page, bool is_values) {
  const KvPageLayout& layout = task.args->layout;
  const std::byte* plane =
      task.span->pages[static_cast<size_t>(page)] + (is_values ? layout.plane_bytes() : 0);
  return reinterpret_cast<const T*>(plane) + layout.element(task.kv_head, 0);
}

// Lays out keys [first_key, first_key + count) of the kv head, two pages at most, without pages
// that lie whole before `first_visible`. Meanwhile fetches the pages of the next tile: those of one
// head are short runs, which the caches do not see coming.
template <typename T>
void LoadTile(const AttentionTask& task, int64_t first_key, int64_t count, int64_t first_visible,
              const TaskArrays& arrays) {
  const int64_t width = task.args->layout.head_width;
  const int64_t padded_width = PaddedHeadWidth(*task.args);
  const int64_t hidden = std::max<int64_t>(0, first_visible - first_key);
  for (int64_t done = hidden / kPagePositions * kPagePositions; done < count;
       done += kPagePositions) {
    const int64_t page = (first_key + done) / kPagePositions;
    const int64_t next = page + kTileKeys / kPagePositions;
    const bool is_last = next >= static_cast<int64_t>(task.span->pages.size());
    const T* next_keys = is_last ? nullptr : HeadRows<T>(task, next, false);
    const T* next_values = is_last ? nullptr : HeadRows<T>(task, next, true);
    const int64_t part = std::min(kPagePositions, count - done);
    const T* keys = HeadRows<T>(task, page, false);
    const T* values = HeadRows<T>(task, page, true);
    if constexpr (sizeof(T) == 2) {
      if (task.uses_dots) {
        PairKeys(keys, next_keys, part, width, arrays.keys + done);
        PairValues(values, next_values, part, width, arrays.values + done / 2 * kPanelOutputs);
        continue;
      }
    }
    TransposeKeys(keys, next_keys, part, width, arrays.keys + done);
    WidenValues(values, next_values, part, width, padded_width,
                arrays.values + done * padded_width);
  }
}

// sums[r][64] (continued unless `starts`) += x[r][2 * pairs] times pairs of a panel; x is bf16,
// rows of 64.
struct DotArgs {
  const float* x = nullptr;
  int64_t rows = 0;
  const float* panel = nullptr;
  int64_t pairs = 0;
  bool starts = true;
  float* sums = nullptr;
};

void MultiplyDots(const DotArgs& args) {
  const TileKernel& kernel = BF16DotKernel();
  for (int64_t row = 0; row < args.rows; row += kMaxTileRows) {
    const int64_t rows = std::min(kMaxTileRows, args.rows - row);
    kernel.in_place[rows]({.x = reinterpret_cast<const std::byte*>(args.x + row * 32),
                           .weights = reinterpret_cast<const std::byte*>(args.panel),
                           .pairs = args.pairs,
                           .starts = args.starts,
                           .sums = args.sums + row * kPanelOutputs});
  }
}

// Scores of queries [first_query, end_query) with the tile's keys.
void ScoreByDots(const AttentionTask& task, const TaskArrays& arrays, int64_t first_query,
                 int64_t end_query) {
  const int64_t queries = task.num_rows * GroupHeads(*task.args);
  const int64_t pairs = (task.args->layout.head_width + 1) / 2;
  for (int64_t first = 0; first < pairs; first += 32) {
    MultiplyDots({.x = arrays.q + (first / 32 * queries + first_query) * 32,
                  .rows = end_query - first_query,
                  .panel = arrays.keys + first * kTileKeys,
                  .pairs = std::min<int64_t>(32, pairs - first),
                  .starts = first == 0,
                  .sums = arrays.scores + first_query * kTileKeys});
  }
}

// Values of the tile's keys [first, last) by the weights of one query or, for a whole tile, some.
// A pair that is half inside is taken without its other half, which may be anything.
void SumByDots(const AttentionTask& task, const TaskArrays& arrays, int64_t query, int64_t count,
               int64_t first, int64_t last) {
  const int64_t queries = task.num_rows * GroupHeads(*task.args);
  const U32Tag d;
  alignas(64) float half[kPanelOutputs];
  for (int64_t panel = 0; panel < NumPanels(task); ++panel) {
    const float* values = arrays.values + panel * kTileKeys / 2 * kPanelOutputs;
    DotArgs dots = {.rows = count, .sums = arrays.tile_out + (panel * queries + query) * kPanelOutputs};
    const auto add = [&](int64_t pair, int64_t pairs, const float* source) {
      dots.x = arrays.weights + query * 32 + pair;
      dots.panel = source;
      dots.pairs = pairs;
      MultiplyDots(dots);
      dots.starts = false;
    };
    const auto add_half = [&](int64_t pair, uint32_t mask) {
      const auto* source = reinterpret_cast<const uint32_t*>(values + pair * kPanelOutputs);
      for (int64_t i = 0; i < kPanelOutputs; i += LaneCount()) {
        hn::Store(hn::And(hn::Load(d, source + i), hn::Set(d, mask)), d,
                  reinterpret_cast<uint32_t*>(half) + i);
      }
      add(pair, 1, half);
    };
    if (first % 2 == 1) add_half(first / 2, 0xffff0000U);
    const int64_t first_pair = (first + 1) / 2;
    if (last / 2 > first_pair) {
      add(first_pair, last / 2 - first_pair, values + first_pair * kPanelOutputs);
    }
    if (last % 2 == 1) add_half(last / 2, 0x0000ffffU);
  }
}

// Scales and caps 64 raw scores, replaces those of keys [first, last) by exp(score - max) and the
// others by 0.
void SoftmaxTile(const AttentionArgs& args, float* scores, int64_t first, int64_t last,
                 float* max_score, float* sum) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const auto begin = hn::Set(d, static_cast<float>(first));
  const auto end = hn::Set(d, static_cast<float>(last));
  const auto is_valid = [&](int64_t i) {
    const auto key = hn::Iota(d, static_cast<float>(i));
    return hn::And(hn::Ge(key, begin), hn::Lt(key, end));
  };
  const auto lowest = hn::Set(d, -INFINITY);
  auto max = lowest;
  for (int64_t i = 0; i < kTileKeys; i += lanes) {
    auto scaled = hn::Mul(hn::Load(d, scores + i), hn::Set(d, args.scale));
    if (args.softcap > 0.0F) scaled = SoftCapLanes(scaled, args.softcap);
    const auto value = hn::IfThenElse(is_valid(i), scaled, lowest);
    hn::Store(value, d, scores + i);
    max = hn::Max(max, value);
  }
  const auto max_all = hn::MaxOfLanes(d, max);
  auto total = hn::Zero(d);
  for (int64_t i = 0; i < kTileKeys; i += lanes) {
    const auto weight =
        hn::IfThenElseZero(is_valid(i), hn::Exp(d, hn::Sub(hn::Load(d, scores + i), max_all)));
    hn::Store(weight, d, scores + i);
    total = hn::Add(total, weight);
  }
  *max_score = hn::GetLane(max_all);
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
}

// Merges the tiles of queries [first_query, end_query) into their running results.
void MergeTile(const AttentionTask& task, const TaskArrays& arrays, int64_t first_query,
               int64_t end_query) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  for (int64_t query = first_query / lanes * lanes; query < end_query; query += lanes) {
    const auto max = hn::Load(d, arrays.max_score + query);
    const auto tile_max = hn::Load(d, arrays.tile_max + query);
    const auto is_merged = hn::And(
        hn::Ge(hn::Iota(d, static_cast<float>(query)), hn::Set(d, static_cast<float>(first_query))),
        hn::Lt(hn::Iota(d, static_cast<float>(query)), hn::Set(d, static_cast<float>(end_query))));
    const auto new_max = hn::IfThenElse(hn::Gt(tile_max, max), tile_max, max);
    const auto old_factor = hn::Exp(d, hn::Sub(max, new_max));
    const auto tile_factor = hn::Exp(d, hn::Sub(tile_max, new_max));
    const auto sum = hn::Load(d, arrays.sum + query);
    const auto tile_sum = hn::Load(d, arrays.tile_sum + query);
    const auto new_sum = hn::Add(hn::Mul(sum, old_factor), hn::Mul(tile_sum, tile_factor));
    hn::Store(hn::IfThenElse(is_merged, new_max, max), d, arrays.max_score + query);
    hn::Store(hn::IfThenElse(is_merged, new_sum, sum), d, arrays.sum + query);
    hn::Store(tile_factor, d, arrays.tile_max + query);
    hn::Store(old_factor, d, arrays.tile_sum + query);
  }
  const int64_t queries = task.num_rows * GroupHeads(*task.args);
  const int64_t width = PanelWidth(task);
  for (int64_t panel = 0; panel < NumPanels(task); ++panel) {
    for (int64_t query = first_query; query < end_query; ++query) {
      const float* tile = arrays.tile_out + (panel * queries + query) * width;
      float* out = arrays.out + (panel * queries + query) * width;
      const auto old_factor = hn::Set(d, arrays.tile_sum[query]);
      const auto tile_factor = hn::Set(d, arrays.tile_max[query]);
      for (int64_t i = 0; i < width; i += lanes) {
        const auto kept = hn::Mul(hn::Load(d, out + i), old_factor);
        hn::Store(hn::MulAdd(hn::Load(d, tile + i), tile_factor, kept), d, out + i);
      }
    }
  }
}

// Brings queries [first_query, end_query), which see keys of the tile, up to date. Query i has
// position first_position + i / group_heads.
void AttendTile(const AttentionTask& task, const TaskArrays& arrays, int64_t first_key,
                int64_t first_query, int64_t end_query) {
  const AttentionArgs& args = *task.args;
  const int64_t width = PaddedHeadWidth(args);
  const int64_t first_position = task.span->first_position + task.first_row;
  if (task.uses_dots) {
    ScoreByDots(task, arrays, first_query, end_query);
  } else {
    Multiply(arrays.q + first_query * width, width, end_query - first_query, arrays.keys, kTileKeys,
             args.layout.head_width, arrays.scores + first_query * kTileKeys);
  }
  // Both ends of what a query sees ascend, so the queries that see the whole tile lie together.
  int64_t first_full = end_query;
  int64_t num_full = 0;
  for (int64_t query = first_query; query < end_query; ++query) {
    const int64_t position = first_position + query / GroupHeads(args);
    const int64_t first = std::max<int64_t>(0, FirstVisibleKey(args, position) - first_key);
    const int64_t last = std::min(kTileKeys, position + 1 - first_key);
    float* weights = arrays.scores + query * kTileKeys;
    SoftmaxTile(args, weights, first, last, arrays.tile_max + query, arrays.tile_sum + query);
    if (task.uses_dots) {
      RoundToBF16(weights, kTileKeys, reinterpret_cast<std::byte*>(arrays.weights + query * 32));
    }
    if (last - first == kTileKeys) {
      first_full = std::min(first_full, query);
      ++num_full;
    } else if (task.uses_dots) {
      SumByDots(task, arrays, query, 1, first, last);
    } else {
      MultiplyRows<1>(weights + first, kTileKeys, arrays.values + first * width, width,
                      last - first, arrays.tile_out + query * width);
    }
  }
  if (task.uses_dots) {
    SumByDots(task, arrays, first_full, num_full, 0, kTileKeys);
  } else {
    Multiply(arrays.scores + first_full * kTileKeys, kTileKeys, num_full, arrays.values, width,
             kTileKeys, arrays.tile_out + first_full * width);
  }
  MergeTile(task, arrays, first_query, end_query);
}

void StoreOut(const AttentionTask& task, const TaskArrays& arrays) {
  const AttentionArgs& args = *task.args;
  const int64_t group = GroupHeads(args);
  const int64_t head_width = args.layout.head_width;
  const int64_t queries = task.num_rows * group;
  const int64_t width = PanelWidth(task);
  for (int64_t query = 0; query < queries; ++query) {
    const int64_t row = task.span->first_row + task.first_row + query / group;
    float* target = args.out.row(row) + (task.kv_head * group + query % group) * head_width;
    const auto sum = hn::Set(F32Tag(), arrays.sum[query]);
    for (int64_t d = 0; d < head_width; d += LaneCount()) {
      const float* source = arrays.out + (d / width * queries + query) * width + d % width;
      StoreFirst(hn::Div(hn::Load(F32Tag(), source), sum), target + d,
                 std::min(LaneCount(), head_width - d));
    }
  }
}

// Lays out the task's queries.
void LoadQueries(const AttentionTask& task, const TaskArrays& arrays) {
  const AttentionArgs& args = *task.args;
  const int64_t group = GroupHeads(args);
  const int64_t queries = task.num_rows * group;
  const int64_t width = args.layout.head_width;
  for (int64_t query = 0; query < queries; ++query) {
    const int64_t row = task.span->first_row + task.first_row + query / group;
    const float* source = args.q.row(row) + (task.kv_head * group + query % group) * width;
    if (!task.uses_dots) {
      std::memcpy(arrays.q + query * PaddedHeadWidth(args), source,
                  static_cast<size_t>(width) * sizeof(float));
      continue;
    }
    for (int64_t d = 0; d < width; d += kSegmentInputs) {
      auto* target = reinterpret_cast<std::byte*>(arrays.q +
                                                  (d / kSegmentInputs * queries + query) * 32);
      const int64_t count = std::min(kSegmentInputs, width - d);
      RoundToBF16(source + d, count, target);
      std::memset(target + 2 * count, 0, static_cast<size_t>(2 * (kSegmentInputs - count)));
    }
  }
}

void AttendTaskSimd(const AttentionTask& task) {
  const AttentionArgs& args = *task.args;
  const int64_t group = GroupHeads(args);
  const int64_t queries = task.num_rows * group;
  const TaskArrays arrays(task, queries, task.scratch);
  LoadQueries(task, arrays);
  const int64_t padded_queries = RoundUp(queries, 16);
  std::fill_n(arrays.max_score, padded_queries, -INFINITY);
  std::fill_n(arrays.tile_max, padded_queries, -INFINITY);
  std::fill_n(arrays.sum, padded_queries, 0.0F);
  std::fill_n(arrays.tile_sum, padded_queries, 0.0F);
  std::fill_n(arrays.out, queries * NumPanels(task) * PanelWidth(task), 0.0F);
  const int64_t first_position = task.span->first_position + task.first_row;
  const int64_t num_keys = first_position + task.num_rows;
  const int64_t first_visible = FirstVisibleKey(args, first_position);
  for (int64_t first_key = first_visible / kTileKeys * kTileKeys; first_key < num_keys;
       first_key += kTileKeys) {
    const int64_t count = std::min(kTileKeys, num_keys - first_key);
    if (args.layout.dtype == DType::kF32) {
      LoadTile<float>(task, first_key, count, first_visible, arrays);
    } else {
      LoadTile<uint16_t>(task, first_key, count, first_visible, arrays);
    }
    const int64_t first_row = std::max<int64_t>(0, first_key - first_position);
    // The last position whose window reaches into the tile is its last key's + window - 1.
    const int64_t end_row =
        args.window == 0
            ? task.num_rows
            : std::min(task.num_rows, first_key + kTileKeys - 1 + args.window - first_position);
    AttendTile(task, arrays, first_key, first_row * group, end_row * group);
  }
  StoreOut(task, arrays);
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(AttendTaskSimd);

int64_t AttentionTaskRows(const AttentionArgs& args) {
  return std::clamp<int64_t>(128 / GroupHeads(args), 1, 64);
}

int64_t AttentionScratchFloats(const AttentionTask& task) {
  const int64_t queries = AttentionTaskRows(*task.args) * GroupHeads(*task.args);
  return TaskArrays::Floats(task, queries);
}

void AttendTask(const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(AttendTaskSimd)(task);
}

}  // namespace nightshift::cpu
#endif
