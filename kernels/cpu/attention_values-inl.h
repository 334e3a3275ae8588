// Values of few queries, taken as they lie in the pages. Each sum takes its products in the same
// order, by the same instruction, as in attention_multiply-inl.h: both give the same bits.
// Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_VALUES_INL_H_
#undef KERNELS_CPU_ATTENTION_VALUES_INL_H_
#else
#define KERNELS_CPU_ATTENTION_VALUES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/attention_layout-inl.h"
#include "kernels/cpu/attention_multiply-inl.h"
#include "kernels/cpu/attention_scores-inl.h"
#include "kernels/cpu/bf16_attention.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Values so many rows ahead are fetched into the first-level cache.
constexpr int64_t kNearRows = 8;

// Rows of values of a tile of two pages.
template <typename T>
struct ValueRows {
  const T* pages[kTilePages] = {};  // [32][D]; null without keys that are seen
  // The half of the next tile's rows that a pass over all columns fetches; null: nothing.
  const T* next[kTilePages] = {};
  KeyRange keys;
};

// out[r][n] = sum over keys ascending of weights[r][key] * values[key][n].
template <int kRows, int kVectors, typename T>
HWY_INLINE void SumTile(const ValueRows<T>& values, int64_t width, const float* weights,
                        int64_t column, float* out) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  F32Vec sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Zero(d);
    }
  }
  for (int64_t page = 0; page < kTilePages; ++page) {
    const int64_t first_key = page * kPagePositions;
    const int64_t last = std::min(values.keys.last, first_key + kPagePositions);
    // 16 of the next tile's rows, a part of them for each key and column.
    const T* next = values.next[page] == nullptr ? nullptr : values.next[page] + 16 * column;
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
    for (int64_t key = std::max(values.keys.first, first_key); key < last; ++key) {
      const T* source = values.pages[page] + (key - first_key) * width + column;
      for (int64_t i = 0; i < kVectors * lanes; i += kLine) {
        __builtin_prefetch(source + kNearRows * width + i);
      }
      if (next != nullptr) {
        for (int64_t i = 0; i < kVectors * lanes / 2; i += kLine) {
          __builtin_prefetch(next + i, 0, 2);
        }
        next += kVectors * lanes / 2;
      }
      F32Vec row[kVectors];
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        row[v] = LoadValues(source + v * lanes);
      }
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
        const auto factor = hn::Set(d, weights[r * kTileKeys + key]);
        HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = hn::MulAdd(factor, row[v], sums[r][v]);
        }
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * width + column + v * lanes);
    }
  }
}

template <int kRows, typename T>
void SumRows(const ValueRows<T>& values, int64_t width, const float* weights, float* out) {
  const int64_t lanes = LaneCount();
  int64_t n = 0;
  for (; n + kWideVectors * lanes <= width; n += kWideVectors * lanes) {
    SumTile<kRows, kWideVectors>(values, width, weights, n, out);
  }
  for (; n < width; n += lanes) {
    SumTile<kRows, 1>(values, width, weights, n, out);
  }
}

template <typename T>
void SumPlain(const AttentionTask& task, const TaskArrays& arrays, const ValueRows<T>& values,
              int64_t query, int64_t count) {
  using Kernel = void (*)(const ValueRows<T>&, int64_t, const float*, float*);
  static constexpr Kernel kKernels[kPassRows + 1] = {nullptr, SumRows<1, T>, SumRows<2, T>,
                                                     SumRows<3, T>, SumRows<4, T>};
  const int64_t width = task.args->layout.head_width;
  kKernels[count](values, width, arrays.scores + query * kTileKeys,
                  arrays.tile_out + query * width);
}

void SumPairs(const AttentionTask& task, const TaskArrays& arrays,
              const ValueRows<uint16_t>& values, int64_t query, int64_t count) {
  const int64_t width = task.args->layout.head_width;
  const auto bytes_at = [](const uint16_t* rows, int64_t element) {
    return rows == nullptr ? nullptr : BytesOf(rows + element);
  };
  for (int64_t panel = 0; panel < NumPanels(task); ++panel) {
    const int64_t column = panel * kPanelOutputs;
    ValueDotArgs dots = {
        .width = width,
        .columns = std::min(kPanelOutputs, width - column),
        .first = values.keys.first,
        .last = values.keys.last,
        .weights = arrays.weights + query * (kTileKeys / 2),
        .rows = count,
        .out = arrays.tile_out + (panel * NumQueries(task) + query) * kPanelOutputs};
    for (int64_t page = 0; page < kTilePages; ++page) {
      dots.pages[page] = bytes_at(values.pages[page], column);
      dots.next[page] = bytes_at(values.next[page], 16 * column);
    }
    SumValueDots(dots);
  }
}

// tile_out of queries [query, query + count) of a head, which see the same keys.
template <typename T>
void SumHead(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile, int64_t head,
             const KeyRange& keys, int64_t query, int64_t count) {
  const int64_t first_page = tile.first_key / kPagePositions;
  const int64_t first_query = head * HeadQueries(task);
  const int64_t width = task.args->layout.head_width;
  for (int64_t done = 0; done < count; done += kPassRows) {
    // The first two passes fetch a half each; the scores have fetched one where one pass is all.
    const int64_t pass = (query + done - first_query) / kPassRows;
    const int64_t half = HeadQueries(task) <= kPassRows ? 1 : pass;
    ValueRows<T> values = {.keys = keys};
    for (int64_t page = keys.first / kPagePositions; page * kPagePositions < keys.last; ++page) {
      values.pages[page] = HeadRows<T>(task, head, first_page + page, true);
      const int64_t next = NextPage(task, first_page + page);
      if (half < 2) values.next[page] = HeadRows<T>(task, head, next, true) + half * 16 * width;
    }
    const int64_t rows = std::min(kPassRows, count - done);
    if constexpr (sizeof(T) == 2) {
      if (task.uses_dots) {
        SumPairs(task, arrays, values, query + done, rows);
        continue;
      }
    }
    SumPlain(task, arrays, values, query + done, rows);
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
