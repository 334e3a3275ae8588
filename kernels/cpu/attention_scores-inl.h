// Scores of few queries with keys as they lie in the pages: a few columns of as many keys as a
// vector holds are transposed in registers and used at once. Each sum takes its products in the
// same order, by the same instruction, as in attention_multiply-inl.h: both give the same bits.
// Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_SCORES_INL_H_
#undef KERNELS_CPU_ATTENTION_SCORES_INL_H_
#else
#define KERNELS_CPU_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/attention_layout-inl.h"
#include "kernels/cpu/bf16_attention.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Queries that share a walk over the keys: a sum each.
constexpr int64_t kBlockQueries = 8;

// Calls body(first, count) for the blocks of a head's queries.
template <typename Body>
HWY_INLINE void ForEachQueryBlock(const AttentionTask& task, const Body& body) {
  for (int64_t first = 0; first < HeadQueries(task); first += kBlockQueries) {
    body(first, std::min(kBlockQueries, HeadQueries(task) - first));
  }
}

// Depth of a sum of the scores: D, with dots as pairs.
int64_t Depth(const AttentionTask& task) {
  return task.uses_dots ? task.args->layout.head_width / 2 : task.args->layout.head_width;
}

// Queries lie as [kv head][block][depth][queries of the block].
float* QueryBlock(const AttentionTask& task, const TaskArrays& arrays, int64_t head,
                  int64_t first) {
  return arrays.q + (head * HeadQueries(task) + first) * Depth(task);
}

void LoadQueriesInPlace(const AttentionTask& task, const TaskArrays& arrays) {
  const int64_t depth = Depth(task);
  for (int64_t head = 0; head < task.num_heads; ++head) {
    ForEachQueryBlock(task, [&](int64_t first, int64_t count) {
      float* block = QueryBlock(task, arrays, head, first);
      for (int64_t query = 0; query < count; ++query) {
        const float* source =
            QueryRow(task, task.args->q, head * HeadQueries(task) + first + query);
        if (task.uses_dots) {
          auto* rounded = reinterpret_cast<std::byte*>(arrays.tile_out);
          for (int64_t i = 0; i < 2 * depth; i += kSegmentInputs) {
            RoundForDots(source + i, std::min(kSegmentInputs, 2 * depth - i), rounded + 2 * i);
          }
          source = arrays.tile_out;
        }
        for (int64_t d = 0; d < depth; ++d) {
          std::memcpy(block + d * count + query, source + d, sizeof(float));
        }
      }
    });
  }
}

template <typename T>
const std::byte* BytesOf(const T* elements) {
  return reinterpret_cast<const std::byte*>(elements);
}

// What is fetched during a step of the scores: into the second-level cache the same rows of the
// next tile's keys and, as long as one pass over the values is all, half as many of its values;
// into the first the keys that follow. Evenly over all steps, because a processor drops what it is
// asked for too fast.
struct StepFetch {
  const std::byte* next_keys = nullptr;
  const std::byte* next_values = nullptr;  // or none
  const std::byte* near_keys = nullptr;
};

HWY_INLINE void Fetch(const StepFetch& fetch, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i += 64) {
    __builtin_prefetch(fetch.next_keys + i, 0, 2);
    __builtin_prefetch(fetch.near_keys + i);
  }
  if (fetch.next_values == nullptr) return;
  for (int64_t i = first / 2; i < last / 2; i += 64) {
    __builtin_prefetch(fetch.next_values + i, 0, 2);
  }
}

// Vectors of keys beside each other: with few queries one vector's sums would wait for each other.
constexpr int64_t StepVectors(int64_t queries) {
  constexpr int64_t kMost = kPagePositions / static_cast<int64_t>(hn::MaxLanes(F32Tag()));
  const int64_t wanted = (HWY_TARGET <= HWY_AVX3 ? 3 : 7) / queries + 1;
  return wanted >= 4 ? std::min<int64_t>(4, kMost) : wanted >= 2 ? std::min<int64_t>(2, kMost) : 1;
}

constexpr int64_t kColumnStep = HWY_TARGET == HWY_SCALAR ? 1 : 4;

// Columns d to d + kColumnStep of LaneCount() keys.
HWY_INLINE void LoadKeyColumns(const float* keys, int64_t width, F32Vec (&columns)[kColumnStep]) {
#if HWY_TARGET == HWY_SCALAR
  (void)width;
  columns[0] = hn::LoadU(F32Tag(), keys);
#else
  LoadColumns(keys, width, columns);
#endif
}

// scores[query][key] = sum over d ascending of keys[key][d] * q[d][query], for
// StepVectors(kQueries) vectors of keys; of bf16 keys, `keys` and `columns` (of a row) count pairs.
template <int kQueries, typename T>
void ScoreStep(const float* keys, int64_t columns, const float* q, const StepFetch& fetch,
               float* scores) {
  constexpr int kVectors = StepVectors(kQueries);
  const F32Tag tag;
  const int64_t lanes = LaneCount();
  F32Vec sums[kVectors][kQueries];
  HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
    HWY_UNROLL(8) for (int query = 0; query < kQueries; ++query) {
      sums[v][query] = hn::Zero(tag);
    }
  }
  const auto add = [&](int v, F32Vec values, const float* factors) HWY_ATTR {
    HWY_UNROLL(8) for (int query = 0; query < kQueries; ++query) {
      sums[v][query] = hn::MulAdd(hn::Set(tag, factors[query]), values, sums[v][query]);
    }
  };
  const int64_t step_bytes = kVectors * lanes * kColumnStep * 4;
  for (int64_t d = 0; d < columns; d += kColumnStep) {
    Fetch(fetch, d / kColumnStep * step_bytes, (d / kColumnStep + 1) * step_bytes);
    HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
      F32Vec four[kColumnStep];
      LoadKeyColumns(keys + v * lanes * columns + d, columns, four);
      HWY_UNROLL(4) for (int i = 0; i < kColumnStep; ++i) {
        if constexpr (sizeof(T) == 4) {
          add(v, four[i], q + i * kQueries);
        } else {
          const auto pair = hn::BitCast(U32Tag(), four[i]);
          add(v, hn::BitCast(tag, hn::ShiftLeft<16>(pair)), q + 2 * i * kQueries);
          add(v, hn::BitCast(tag, hn::And(pair, hn::Set(U32Tag(), 0xffff0000U))),
              q + (2 * i + 1) * kQueries);
        }
      }
    }
    q += kColumnStep * kQueries * (4 / static_cast<int64_t>(sizeof(T)));
  }
  HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
    HWY_UNROLL(8) for (int query = 0; query < kQueries; ++query) {
      hn::Store(sums[v][query], tag, scores + query * kTileKeys + v * lanes);
    }
  }
}

using StepKernel = void (*)(const float* keys, int64_t columns, const float* q,
                            const StepFetch& fetch, float* scores);

struct StepKernels {
  int64_t keys = 0;
  StepKernel score = nullptr;
};

template <typename T>
StepKernels StepKernelsOf(int64_t queries) {
  static constexpr StepKernel kKernels[kBlockQueries + 1] = {
      nullptr,         ScoreStep<1, T>, ScoreStep<2, T>, ScoreStep<3, T>, ScoreStep<4, T>,
      ScoreStep<5, T>, ScoreStep<6, T>, ScoreStep<7, T>, ScoreStep<8, T>};
  return {StepVectors(queries) * LaneCount(), kKernels[queries]};
}

// Raw scores of a head's queries with the keys of a page up to `last` (and those beside them in
// whole steps, whatever they hold).
template <typename T>
void ScorePage(const AttentionTask& task, const TaskArrays& arrays, int64_t head, const T* keys,
               int64_t last, const T* next_keys, const T* next_values, float* scores) {
  const int64_t row_bytes = task.args->layout.head_width * static_cast<int64_t>(sizeof(T));
  ForEachQueryBlock(task, [&](int64_t first, int64_t count) HWY_ATTR {
    const float* q = QueryBlock(task, arrays, head, first);
    const StepKernels plain = StepKernelsOf<T>(count);
    const int64_t step = task.uses_dots ? kDotKeys : plain.keys;
    for (int64_t key = 0; key < last; key += step) {
      const std::byte* rows = BytesOf(keys) + key * row_bytes;
      const StepFetch fetch = {.next_keys = BytesOf(next_keys) + key * row_bytes,
                               .next_values = next_values == nullptr
                                                  ? nullptr
                                                  : BytesOf(next_values) + key * row_bytes / 2,
                               .near_keys = rows + step * row_bytes};
      float* target = scores + first * kTileKeys + key;
      if (task.uses_dots) {
        ScoreKeyDots({.keys = rows,
                      .pairs = row_bytes / 4,
                      .q = q,
                      .queries = count,
                      .next_keys = fetch.next_keys,
                      .next_values = fetch.next_values,
                      .scores = target});
      } else {
        plain.score(reinterpret_cast<const float*>(rows), row_bytes / 4, q, fetch, target);
      }
    }
  });
}

// Rows of weights of one pass over values.
constexpr int64_t kPassRows = 4;

// Raw scores of all queries with the tile's keys, and with those beside them in whole steps,
// whatever they hold.
template <typename T>
void ScoreTile(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  const bool fetches_values = !task.is_sparse && HeadQueries(task) <= kPassRows;
  for (int64_t done = tile.hidden / kPagePositions * kPagePositions; done < tile.count;
       done += kPagePositions) {
    const int64_t page = (tile.first_key + done) / kPagePositions;
    const int64_t next = NextPage(task, page);
    for (int64_t head = 0; head < task.num_heads; ++head) {
      ScorePage<T>(task, arrays, head, HeadRows<T>(task, head, page, false),
                   std::min(kPagePositions, tile.count - done),
                   HeadRows<T>(task, head, next, false),
                   fetches_values ? HeadRows<T>(task, head, next, true) : nullptr,
                   arrays.scores + head * HeadQueries(task) * kTileKeys + done);
    }
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
