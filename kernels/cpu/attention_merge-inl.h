// The softmax of one key tile and its merge into a query's running result, for queries whose raw
// scores are there. Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_ATTENTION_MERGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_MERGE_INL_H_
#undef KERNELS_CPU_ATTENTION_MERGE_INL_H_
#else
#define KERNELS_CPU_ATTENTION_MERGE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/soft_cap-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Scales and caps 64 raw scores, replaces those of keys [first, last) by exp(score - max) and the
// others by 0. kWhole: all 64.
template <bool kWhole>
HWY_INLINE void SoftmaxTile(const AttentionArgs& args, float* scores, const KeyRange& keys,
                            float* max_score, float* sum) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const auto scale = hn::Set(d, args.scale);
  const auto begin = hn::Set(d, static_cast<float>(keys.first));
  const auto end = hn::Set(d, static_cast<float>(keys.last));
  const auto is_seen = [&](int64_t i) HWY_ATTR {
    const auto key = hn::Iota(d, static_cast<float>(i));
    return hn::And(hn::Ge(key, begin), hn::Lt(key, end));
  };
  const auto lowest = hn::Set(d, -INFINITY);
  auto max = lowest;
  for (int64_t i = 0; i < kTileKeys; i += lanes) {
    auto score = hn::Mul(hn::Load(d, scores + i), scale);
    if (args.softcap > 0.0F) score = SoftCapLanes(score, args.softcap);
    if constexpr (!kWhole) score = hn::IfThenElse(is_seen(i), score, lowest);
    hn::Store(score, d, scores + i);
    max = hn::Max(max, score);
  }
  const auto max_all = hn::MaxOfLanes(d, max);
  auto total = hn::Zero(d);
  for (int64_t i = 0; i < kTileKeys; i += lanes) {
    auto weight = ExpLanes(hn::Sub(hn::Load(d, scores + i), max_all));
    if constexpr (!kWhole) weight = hn::IfThenElseZero(is_seen(i), weight);
    hn::Store(weight, d, scores + i);
    total = hn::Add(total, weight);
  }
  *max_score = hn::GetLane(max_all);
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
}

// The same for queries [query, query + count), which see the same keys.
void SoftmaxQueries(const AttentionTask& task, const TaskArrays& arrays, const KeyRange& keys,
                    int64_t query, int64_t count) {
  for (; count > 0; ++query, --count) {
    float* weights = arrays.scores + query * kTileKeys;
    if (keys == KeyRange{0, kTileKeys}) {
      SoftmaxTile<true>(*task.args, weights, keys, arrays.tile_max + query,
                        arrays.tile_sum + query);
    } else {
      SoftmaxTile<false>(*task.args, weights, keys, arrays.tile_max + query,
                         arrays.tile_sum + query);
    }
    if (task.uses_dots && !task.args->layout.is_packed()) {
      RoundForDots(weights, kTileKeys, reinterpret_cast<std::byte*>(arrays.weights + query * 32));
    }
  }
}

// Merges the tile's results of queries [first_query, end_query) into their running ones.
void MergeQueries(const AttentionTask& task, const TaskArrays& arrays, int64_t first_query,
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
    const auto old_factor = ExpLanes(hn::Sub(max, new_max));
    const auto tile_factor = ExpLanes(hn::Sub(tile_max, new_max));
    const auto sum = hn::Load(d, arrays.sum + query);
    const auto tile_sum = hn::Load(d, arrays.tile_sum + query);
    const auto new_sum = hn::Add(hn::Mul(sum, old_factor), hn::Mul(tile_sum, tile_factor));
    hn::Store(hn::IfThenElse(is_merged, new_max, max), d, arrays.max_score + query);
    hn::Store(hn::IfThenElse(is_merged, new_sum, sum), d, arrays.sum + query);
    hn::Store(tile_factor, d, arrays.tile_max + query);
    hn::Store(old_factor, d, arrays.tile_sum + query);
  }
  const int64_t queries = NumQueries(task);
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

// Calls body(keys, query, count) for the runs of a head's queries that see the same keys of the
// tile.
template <typename Body>
HWY_INLINE void ForEachRun(const AttentionTask& task, const KeyTile& tile, int64_t head,
                           const Body& body) {
  const int64_t group = GroupHeads(*task.args);
  for (int64_t row = tile.first_row; row < tile.end_row;) {
    const KeyRange keys = SeenKeys(task, tile, row);
    int64_t end = row + 1;
    while (end < tile.end_row && SeenKeys(task, tile, end) == keys) {
      ++end;
    }
    body(keys, head * HeadQueries(task) + row * group, (end - row) * group);
    row = end;
  }
}

// Turns the raw scores of all queries that see keys of the tile into weights.
void WeighTile(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  for (int64_t head = 0; head < task.num_heads; ++head) {
    ForEachRun(task, tile, head, [&](const KeyRange& keys, int64_t query, int64_t count) {
      SoftmaxQueries(task, arrays, keys, query, count);
    });
  }
}

// Merges tile_out and the tile's sums into the running results of the same queries.
void MergeTile(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  if (tile.first_row == 0 && tile.end_row == task.num_rows) {
    MergeQueries(task, arrays, 0, NumQueries(task));
    return;
  }
  const int64_t group = GroupHeads(*task.args);
  for (int64_t head = 0; head < task.num_heads; ++head) {
    const int64_t first = head * HeadQueries(task);
    MergeQueries(task, arrays, first + tile.first_row * group, first + tile.end_row * group);
  }
}

void StartQueries(const AttentionTask& task, const TaskArrays& arrays) {
  const int64_t queries = RoundUp(NumQueries(task), 16);
  std::fill_n(arrays.max_score, queries, -INFINITY);
  std::fill_n(arrays.tile_max, queries, -INFINITY);
  std::fill_n(arrays.sum, queries, 0.0F);
  std::fill_n(arrays.tile_sum, queries, 0.0F);
  std::fill_n(arrays.out, NumQueries(task) * NumPanels(task) * PanelWidth(task), 0.0F);
}

void StoreOut(const AttentionTask& task, const TaskArrays& arrays) {
  const int64_t head_width = task.args->layout.head_width;
  const int64_t queries = NumQueries(task);
  const int64_t width = PanelWidth(task);
  for (int64_t query = 0; query < queries; ++query) {
    float* target = QueryRow(task, task.args->out, query);
    const auto sum = hn::Set(F32Tag(), arrays.sum[query]);
    for (int64_t d = 0; d < head_width; d += LaneCount()) {
      const float* source = arrays.out + (d / width * queries + query) * width + d % width;
      StoreFirst(hn::Div(hn::Load(F32Tag(), source), sum), target + d,
                 std::min(LaneCount(), head_width - d));
    }
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
