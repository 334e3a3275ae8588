#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/convert.h"

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

// The arrays of one task, carved from its scratch. Q = rows x heads of the group, row-major.
struct TaskArrays {
  TaskArrays(const AttentionArgs& args, int64_t queries, float* scratch) {
    const int64_t width = PaddedHeadWidth(args);
    keys = scratch;
    values = keys + width * kTileKeys;
    q = values + width * kTileKeys;
    scores = q + queries * width;
    tile_out = scores + queries * kTileKeys;
    out = tile_out + queries * width;
    max_score = out + queries * width;
    tile_max = max_score + queries;
    sum = tile_max + queries;
    tile_sum = sum + queries;
  }

  float* keys;       // [D][64], transposed
  float* values;     // [64][padded D]
  float* q;          // [Q][padded D]
  float* scores;     // [Q][64], then weights exp(score - tile_max)
  float* tile_out;   // [Q][padded D]
  float* out;        // [Q][padded D]
  float* max_score;  // [Q] of all tiles so far
  float* tile_max;   // [Q]
  float* sum;        // [Q] of weights, of all tiles so far
  float* tile_sum;   // [Q]
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

// target[d][key] = source[key][d] for 4 keys and 4 dimensions.
template <typename T>
HWY_INLINE void TransposeFour(const T* source, int64_t width, float* target) {
  const F32x4Tag d;
  const auto a = LoadFour(source);
  const auto b = LoadFour(source + width);
  const auto c = LoadFour(source + 2 * width);
  const auto e = LoadFour(source + 3 * width);
  const auto ab_low = hn::InterleaveLower(d, a, b);
  const auto ab_high = hn::InterleaveUpper(d, a, b);
  const auto ce_low = hn::InterleaveLower(d, c, e);
  const auto ce_high = hn::InterleaveUpper(d, c, e);
  hn::Store(hn::ConcatLowerLower(d, ce_low, ab_low), d, target);
  hn::Store(hn::ConcatUpperUpper(d, ce_low, ab_low), d, target + kTileKeys);
  hn::Store(hn::ConcatLowerLower(d, ce_high, ab_high), d, target + 2 * kTileKeys);
  hn::Store(hn::ConcatUpperUpper(d, ce_high, ab_high), d, target + 3 * kTileKeys);
}
#endif

// target [D][64] = the first `count` keys of a page's [32][D], transposed. Up to 3 keys behind
// them, which lie in the page, are moved too.
template <typename T>
void TransposeKeys(const T* source, int64_t count, int64_t width, float* target) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; d + 4 <= width; d += 4) {
    for (int64_t key = 0; key < count; key += 4) {
      TransposeFour(source + key * width + d, width, target + d * kTileKeys + key);
    }
  }
#endif
  for (; d < width; ++d) {
    for (int64_t key = 0; key < count; ++key) {
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
void WidenValues(const T* source, int64_t count, int64_t width, int64_t padded_width,
                 float* target) {
  const int64_t lanes = LaneCount();
  for (int64_t key = 0; key < count; ++key, source += width, target += padded_width) {
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

// Lays out keys [first_key, first_key + count) of the kv head, two pages at most, without pages
// that lie whole before `first_visible`.
template <typename T>
void LoadTile(const AttentionTask& task, int64_t first_key, int64_t count, int64_t first_visible,
              const TaskArrays& arrays) {
  const KvPageLayout& layout = task.args->layout;
  const int64_t padded_width = PaddedHeadWidth(*task.args);
  const int64_t hidden = std::max<int64_t>(0, first_visible - first_key);
  for (int64_t done = hidden / kPagePositions * kPagePositions; done < count;
       done += kPagePositions) {
    const std::byte* page =
        task.span->pages[static_cast<size_t>((first_key + done) / kPagePositions)];
    const int64_t part = std::min(kPagePositions, count - done);
    const auto* keys = reinterpret_cast<const T*>(page) + layout.element(task.kv_head, 0);
    const auto* values =
        reinterpret_cast<const T*>(page + layout.plane_bytes()) + layout.element(task.kv_head, 0);
    TransposeKeys(keys, part, layout.head_width, arrays.keys + done);
    WidenValues(values, part, layout.head_width, padded_width, arrays.values + done * padded_width);
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

// Merges a query's tile into its running result.
void MergeTile(const TaskArrays& arrays, int64_t query, int64_t width) {
  const F32Tag d;
  const float* tile = arrays.tile_out + query * width;
  float* out = arrays.out + query * width;
  const float new_max = std::max(arrays.max_score[query], arrays.tile_max[query]);
  const auto old_factor = hn::Exp(d, hn::Set(d, arrays.max_score[query] - new_max));
  const auto tile_factor = hn::Exp(d, hn::Set(d, arrays.tile_max[query] - new_max));
  for (int64_t i = 0; i < width; i += LaneCount()) {
    const auto kept = hn::Mul(hn::Load(d, out + i), old_factor);
    hn::Store(hn::MulAdd(hn::Load(d, tile + i), tile_factor, kept), d, out + i);
  }
  arrays.max_score[query] = new_max;
  arrays.sum[query] = arrays.sum[query] * hn::GetLane(old_factor) +
                      arrays.tile_sum[query] * hn::GetLane(tile_factor);
}

// Brings queries [first_query, end_query), which see keys of the tile, up to date. Query i has
// position first_position + i / group_heads.
void AttendTile(const AttentionTask& task, const TaskArrays& arrays, int64_t first_key,
                int64_t first_query, int64_t end_query) {
  const AttentionArgs& args = *task.args;
  const int64_t width = PaddedHeadWidth(args);
  const int64_t first_position = task.span->first_position + task.first_row;
  Multiply(arrays.q + first_query * width, width, end_query - first_query, arrays.keys, kTileKeys,
           args.layout.head_width, arrays.scores + first_query * kTileKeys);
  // Both ends of what a query sees ascend, so the queries that see the whole tile lie together.
  int64_t first_full = end_query;
  int64_t num_full = 0;
  for (int64_t query = first_query; query < end_query; ++query) {
    const int64_t position = first_position + query / GroupHeads(args);
    const int64_t first = std::max<int64_t>(0, FirstVisibleKey(args, position) - first_key);
    const int64_t last = std::min(kTileKeys, position + 1 - first_key);
    float* weights = arrays.scores + query * kTileKeys;
    SoftmaxTile(args, weights, first, last, arrays.tile_max + query, arrays.tile_sum + query);
    if (last - first == kTileKeys) {
      first_full = std::min(first_full, query);
      ++num_full;
    } else {
      MultiplyRows<1>(weights + first, kTileKeys, arrays.values + first * width, width,
                      last - first, arrays.tile_out + query * width);
    }
  }
  Multiply(arrays.scores + first_full * kTileKeys, kTileKeys, num_full, arrays.values, width,
           kTileKeys, arrays.tile_out + first_full * width);
  for (int64_t query = first_query; query < end_query; ++query) {
    MergeTile(arrays, query, width);
  }
}

void StoreOut(const AttentionTask& task, const TaskArrays& arrays) {
  const AttentionArgs& args = *task.args;
  const int64_t group = GroupHeads(args);
  const int64_t head_width = args.layout.head_width;
  for (int64_t query = 0; query < task.num_rows * group; ++query) {
    const int64_t row = task.span->first_row + task.first_row + query / group;
    float* target = args.out.row(row) + (task.kv_head * group + query % group) * head_width;
    const float* source = arrays.out + query * PaddedHeadWidth(args);
    const auto sum = hn::Set(F32Tag(), arrays.sum[query]);
    for (int64_t d = 0; d < head_width; d += LaneCount()) {
      StoreFirst(hn::Div(hn::Load(F32Tag(), source + d), sum), target + d,
                 std::min(LaneCount(), head_width - d));
    }
  }
}

void AttendTaskSimd(const AttentionTask& task) {
  const AttentionArgs& args = *task.args;
  const int64_t group = GroupHeads(args);
  const int64_t queries = task.num_rows * group;
  const int64_t width = PaddedHeadWidth(args);
  const TaskArrays arrays(args, queries, task.scratch);
  for (int64_t query = 0; query < queries; ++query) {
    const int64_t row = task.span->first_row + task.first_row + query / group;
    const int64_t head = task.kv_head * group + query % group;
    std::memcpy(arrays.q + query * width, args.q.row(row) + head * args.layout.head_width,
                static_cast<size_t>(args.layout.head_width) * sizeof(float));
    arrays.max_score[query] = -INFINITY;
    arrays.sum[query] = 0.0F;
  }
  std::fill_n(arrays.out, queries * width, 0.0F);
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

int64_t AttentionScratchFloats(const AttentionArgs& args) {
  const int64_t queries = AttentionTaskRows(args) * GroupHeads(args);
  const int64_t width = PaddedHeadWidth(args);
  return 2 * width * kTileKeys + queries * (3 * width + kTileKeys + 4);
}

void AttendTask(const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(AttendTaskSimd)(task);
}

}  // namespace nightshift::cpu
#endif
