// Sparse rows (kernels/ops.h): the softmax runs over all keys that a query sees, then the values of
// few keys are added up. Raw scores are those of dense rows, tile by tile; they are kept until all
// are there. Of the values nothing is read but the rows that are kept (of 4 bits: the block of 8
// positions that such a row lies in).
// A query's bits depend on its position, the pages and the fraction: weights are summed in ascending
// order of vectors, values in ascending order of keys.
// Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_SPARSE_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_SPARSE_ATTENTION_INL_H_
#undef KERNELS_CPU_SPARSE_ATTENTION_INL_H_
#else
#define KERNELS_CPU_SPARSE_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <hwy/highway.h>

#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/attention_layout-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/packed_attention-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/soft_cap-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

using I32Tag = hn::RebindToSigned<F32Tag>;

// A query's scores, then weights, of all keys of its task's tiles.
HWY_INLINE float* AllScores(const AttentionTask& task, const TaskArrays& arrays, int64_t query) {
  return arrays.all_scores + query * TileKeysInAll(task);
}

// Keeps the raw scores of a tile, scaled and capped.
void KeepScores(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  const F32Tag d;
  const auto scale = hn::Set(d, task.args->scale);
  const float softcap = task.args->softcap;
  for (int64_t query = 0; query < NumQueries(task); ++query) {
    const float* source = arrays.scores + query * kTileKeys;
    float* target = AllScores(task, arrays, query) + tile.first_key - FirstTileKey(task);
    for (int64_t i = 0; i < kTileKeys; i += LaneCount()) {
      auto score = hn::Mul(hn::Load(d, source + i), scale);
      if (softcap > 0.0F) score = SoftCapLanes(score, softcap);
      hn::Store(score, d, target + i);
    }
  }
}

// What cannot be kept: less than every weight, as a number and as an integer.
constexpr float kNoWeight = -1.0F;

// Replaces the scores of `keys` by exp(score - max), others of the `count` by kNoWeight. Returns the
// sum.
float WeighAll(const KeyRange& keys, int64_t count, float* scores) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const auto fill_others = [&](float value) {
    std::fill(scores, scores + keys.first, value);
    std::fill(scores + keys.last, scores + count, value);
  };
  fill_others(-INFINITY);
  auto max = hn::Set(d, -INFINITY);
  for (int64_t i = 0; i < count; i += lanes) {
    max = hn::Max(max, hn::Load(d, scores + i));
  }
  max = hn::MaxOfLanes(d, max);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto weight = ExpLanes(hn::Sub(hn::Load(d, scores + i), max));
    sum = hn::Add(sum, weight);
    hn::Store(weight, d, scores + i);
  }
  fill_others(kNoWeight);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Keys that weigh more than `above` are kept, and of those that weigh as much the ones up to
// `last_tie`. Weights are compared as integers: from 0 on the order is the same.
struct Threshold {
  int32_t above = 0;
  int32_t last_tie = -1;
};

HWY_INLINE hn::Vec<I32Tag> LoadOrder(const float* weights) {
  return hn::BitCast(I32Tag(), hn::Load(F32Tag(), weights));
}

int64_t CountAbove(const float* weights, int64_t count, int32_t bound) {
  const I32Tag di;
  const auto bounds = hn::Set(di, bound);
  size_t above = 0;
  for (int64_t i = 0; i < count; i += LaneCount()) {
    above += hn::CountTrue(di, hn::Gt(LoadOrder(weights + i), bounds));
  }
  return static_cast<int64_t>(above);
}

// What keeps `wanted` of more keys than that: halves the interval in which the bound lies.
Threshold FindThreshold(const float* weights, int64_t count, int64_t wanted) {
  if (wanted == 0) return {.above = std::numeric_limits<int32_t>::max()};
  int32_t low = -1;                             // more than `wanted` are above
  int32_t high = std::bit_cast<int32_t>(2.0F);  // fewer, above_high
  int64_t above_high = 0;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    const int64_t above = CountAbove(weights, count, middle);
    if (above == wanted) return {.above = middle};
    if (above > wanted) {
      low = middle;
    } else {
      high = middle;
      above_high = above;
    }
  }
  Threshold threshold = {.above = high};
  for (int64_t left = wanted - above_high, i = 0; left > 0 && i < count; ++i) {
    if (std::bit_cast<int32_t>(weights[i]) == high) {
      threshold.last_tie = static_cast<int32_t>(i);
      --left;
    }
  }
  return threshold;
}

// Writes the kept keys in ascending order, and up to a vector more. Returns how many there are.
int64_t ListKept(const float* weights, int64_t count, const Threshold& threshold, int32_t* kept) {
  const I32Tag di;
  const auto above = hn::Set(di, threshold.above);
  const auto behind_ties = hn::Set(di, threshold.last_tie + 1);
  size_t found = 0;
  for (int64_t i = 0; i < count; i += LaneCount()) {
    const auto order = LoadOrder(weights + i);
    const auto key = hn::Iota(di, static_cast<int32_t>(i));
    const auto is_tie = hn::And(hn::Eq(order, above), hn::Lt(key, behind_ties));
    const auto is_kept = hn::Or(hn::Gt(order, above), is_tie);
    hn::StoreU(hn::Compress(key, is_kept), di, kept + found);
    found += hn::CountTrue(di, is_kept);
  }
  return static_cast<int64_t>(found);
}

// Of one query.
struct KeptKeys {
  int64_t head = 0;               // of the task
  std::vector<int32_t> keys;      // from FirstTileKey on, ascending; the first `count` count
  std::vector<float> weights;     // of these
  std::vector<float> scaled;      // of packed values: times the scales of a group
  std::vector<const std::byte*> rows;  // as ValueRow
  int64_t count = 0;
  float sum = 0.0F;  // of the weights of all keys that the query sees
};

// Where the values of a position of a head begin; of packed ones, the codes of its block or pair.
HWY_INLINE const std::byte* ValueRow(const AttentionTask& task, int64_t head, int64_t position) {
  const KvPageLayout& layout = task.args->layout;
  const int64_t slot = position % kPagePositions;
  const std::byte* plane = task.span->pages[static_cast<size_t>(position / kPagePositions)] +
                           layout.plane_bytes();
  if (!layout.is_packed()) {
    return plane + layout.element(task.first_head + head, slot) * FloatBytes(layout.dtype);
  }
  const bool is_4_bits = layout.code_bits() == 4;
  const int64_t row = is_4_bits ? slot / kCodeBlock : slot / 2;
  return plane + layout.codes_offset(task.first_head + head) +
         row * layout.padded_width() * (is_4_bits ? kLaneBytes<4> : kLaneBytes<8>);
}

void SelectKeys(const AttentionTask& task, const TaskArrays& arrays, int64_t query,
                KeptKeys& kept) {
  const int64_t row = query % HeadQueries(task) / GroupHeads(*task.args);
  const int64_t position = task.span->first_position + task.first_row + row;
  const KeyRange seen = {FirstVisibleKey(*task.args, position) - FirstTileKey(task),
                         position + 1 - FirstTileKey(task)};
  const int64_t count = RoundUp(seen.last, kTileKeys);
  float* weights = AllScores(task, arrays, query);
  kept.head = query / HeadQueries(task);
  kept.sum = WeighAll(seen, count, weights);
  const float own = weights[seen.last - 1];
  weights[seen.last - 1] = kNoWeight;
  const int64_t others = seen.last - 1 - seen.first;
  const auto wanted =
      static_cast<int64_t>(task.args->sparse_fraction * static_cast<double>(others));
  kept.count = ListKept(weights, count, FindThreshold(weights, count, wanted), kept.keys.data());
  weights[seen.last - 1] = own;
  kept.keys[static_cast<size_t>(kept.count)] = static_cast<int32_t>(seen.last - 1);
  ++kept.count;
  for (size_t i = 0; i < static_cast<size_t>(kept.count); ++i) {
    kept.weights[i] = weights[kept.keys[i]];
    kept.rows[i] = ValueRow(task, kept.head, FirstTileKey(task) + kept.keys[i]);
  }
}

// Rows of values so far ahead are fetched.
constexpr int64_t kKeptAhead = 8;

// Fetches part of a row that comes later.
HWY_INLINE void FetchKept(const KeptKeys& kept, int64_t i, int64_t first_byte, int64_t bytes) {
  if (i + kKeptAhead >= kept.count) return;
  const std::byte* row = kept.rows[static_cast<size_t>(i + kKeptAhead)] + first_byte;
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(row + at);
  }
}

// The `count` values at `source`, zeros behind them.
template <typename T>
HWY_INLINE F32Vec LoadPartOfRow(const T* source, int64_t count) {
  alignas(64) float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] = Widen(source[i]);
  }
  return hn::Load(F32Tag(), lanes);
}

// kVectors whole vectors of a query's output from `column` on; or, of 0, the `rest` last columns.
template <int kVectors, typename T>
void SumKeptColumns(const KeptKeys& kept, int64_t column, int64_t rest, float* out) {
  constexpr int kSums = kVectors == 0 ? 1 : kVectors;
  const F32Tag d;
  const int64_t lanes = LaneCount();
  F32Vec sums[kSums];
  HWY_UNROLL(8) for (int v = 0; v < kSums; ++v) {
    sums[v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < kept.count; ++i) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    FetchKept(kept, i, column * kBytes, kSums * lanes * kBytes);
    const T* row = reinterpret_cast<const T*>(kept.rows[static_cast<size_t>(i)]) + column;
    const auto weight = hn::Set(d, kept.weights[static_cast<size_t>(i)]);
    if constexpr (kVectors == 0) {
      sums[0] = hn::MulAdd(weight, LoadPartOfRow(row, rest), sums[0]);
    } else {
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        sums[v] = hn::MulAdd(weight, LoadValues(row + v * lanes), sums[v]);
      }
    }
  }
  HWY_UNROLL(8) for (int v = 0; v < kSums; ++v) {
    StoreFirst(hn::Div(sums[v], hn::Set(d, kept.sum)), out + column + v * lanes,
               kVectors == 0 ? rest : lanes);
  }
}

// Vectors of a pass over the kept rows.
constexpr int64_t kKeptVectors = 8;

template <typename T>
void SumKeptRows(const AttentionTask& task, KeptKeys& kept, float* out) {
  const int64_t lanes = LaneCount();
  const int64_t width = task.args->layout.head_width;
  int64_t column = 0;
  for (; column + kKeptVectors * lanes <= width; column += kKeptVectors * lanes) {
    SumKeptColumns<kKeptVectors, T>(kept, column, 0, out);
  }
  for (; column + lanes <= width; column += lanes) {
    SumKeptColumns<1, T>(kept, column, 0, out);
  }
  if (column < width) SumKeptColumns<0, T>(kept, column, width - column, out);
}

// kept.scaled = the weights times the scales of a group. Returns the sum of weight * minimum.
float ScaleKept(const AttentionTask& task, int64_t group, KeptKeys& kept) {
  alignas(64) float numbers[2][kPagePositions];
  int64_t loaded = -1;
  float base = 0.0F;
  for (size_t i = 0; i < static_cast<size_t>(kept.count); ++i) {
    const int64_t position = FirstTileKey(task) + kept.keys[i];
    const int64_t page = position / kPagePositions;
    if (page != loaded) {
      const std::byte* source =
          HeadIn(task, kept.head, page, true).numbers + group * KvPageLayout::kNumbersBytes;
      for (int64_t lane = 0; lane < kPagePositions; lane += LaneCount()) {
        hn::Store(LoadHalves(source + 2 * lane), F32Tag(), numbers[0] + lane);
        hn::Store(LoadHalves(source + 2 * (kPagePositions + lane)), F32Tag(), numbers[1] + lane);
      }
      loaded = page;
    }
    kept.scaled[i] = kept.weights[i] * numbers[0][position % kPagePositions];
    base += kept.weights[i] * numbers[1][position % kPagePositions];
  }
  return base;
}

// Some vectors of the columns of a group, from `column` of the head on.
template <int kBits, int kVectors>
void SumKeptCodes(const KeptKeys& kept, float base, int64_t column, int64_t head_width,
                  float* out) {
  const F32Tag d;
  const I32Tag di;
  const int64_t lanes = LaneCount();
  F32Vec sums[kVectors];
  HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
    sums[v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < kept.count; ++i) {
    FetchKept(kept, i, column * kLaneBytes<kBits>, kVectors * lanes * kLaneBytes<kBits>);
    const std::byte* row = kept.rows[static_cast<size_t>(i)] + column * kLaneBytes<kBits>;
    const auto weight = hn::Set(d, kept.scaled[static_cast<size_t>(i)]);
    const int in_block = kept.keys[static_cast<size_t>(i)] % kCodeBlock;
    HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
      const std::byte* at = row + v * lanes * kLaneBytes<kBits>;
      hn::Vec<I32Tag> codes;
      if constexpr (kBits == 4) {
        const auto block = hn::LoadU(U32Tag(), reinterpret_cast<const uint32_t*>(at));
        codes = hn::BitCast(di, hn::ShiftRightSame(block, in_block / 2 * 4 + in_block % 2 * 16));
        codes = hn::And(codes, hn::Set(di, 15));
      } else {
        const hn::Rebind<uint16_t, F32Tag> words;
        const auto pair = hn::LoadU(words, reinterpret_cast<const uint16_t*>(at));
        codes = hn::ShiftRightSame(hn::PromoteTo(di, pair), in_block % 2 * 8);
        codes = hn::And(codes, hn::Set(di, 255));
      }
      sums[v] = hn::MulAdd(weight, hn::ConvertTo(d, codes), sums[v]);
    }
  }
  for (int64_t v = 0; v < kVectors && column + v * lanes < head_width; ++v) {
    const auto total = hn::Add(sums[v], hn::Set(d, base));
    StoreFirst(hn::Div(total, hn::Set(d, kept.sum)), out + column + v * lanes,
               std::min(lanes, head_width - column - v * lanes));
  }
}

template <int kBits>
void SumKeptPacked(const AttentionTask& task, KeptKeys& kept, float* out) {
  constexpr int64_t kVectors = 4;
  const int64_t lanes = LaneCount();
  const int64_t width = task.args->layout.head_width;
  for (int64_t group = 0; group < task.args->layout.num_groups(); ++group) {
    const float base = ScaleKept(task, group, kept);
    int64_t column = group * kKvGroup;
    const int64_t end = column + GroupWidth(task, group);
    for (; column + kVectors * lanes <= end; column += kVectors * lanes) {
      SumKeptCodes<kBits, kVectors>(kept, base, column, width, out);
    }
    for (; column < end; column += lanes) {
      SumKeptCodes<kBits, 1>(kept, base, column, width, out);
    }
  }
}

// Outputs of all queries of a task whose scores are kept.
void AddKeptValues(const AttentionTask& task, const TaskArrays& arrays) {
  const KvPageLayout& layout = task.args->layout;
  const auto sum = layout.is_packed() ? (layout.code_bits() == 4 ? SumKeptPacked<4> : SumKeptPacked<8>)
                   : layout.dtype == DType::kF32 ? SumKeptRows<float>
                                                 : SumKeptRows<uint16_t>;
  KeptKeys kept;
  const auto most = static_cast<size_t>(TileKeysInAll(task) + LaneCount());
  kept.keys.resize(most);
  kept.weights.resize(most);
  kept.scaled.resize(most);
  kept.rows.resize(most);
  for (int64_t query = 0; query < NumQueries(task); ++query) {
    SelectKeys(task, arrays, query, kept);
    sum(task, kept, QueryRow(task, task.args->out, query));
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
