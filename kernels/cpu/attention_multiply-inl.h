// Multiplies many queries, or their weights, with a tile that attention_layout-inl.h laid out.
// Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_ATTENTION_MULTIPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_ATTENTION_MULTIPLY_INL_H_
#undef KERNELS_CPU_ATTENTION_MULTIPLY_INL_H_
#else
#define KERNELS_CPU_ATTENTION_MULTIPLY_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

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
    kernel.few[rows]({.x = reinterpret_cast<const std::byte*>(args.x + row * 32),
                      .weights = reinterpret_cast<const std::byte*>(args.panel),
                      .pairs = args.pairs,
                      .starts = args.starts,
                      .sums = args.sums + row * kPanelOutputs});
  }
}

// Scores of queries [first_query, end_query) with the tile's keys.
void ScoreByDots(const AttentionTask& task, const TaskArrays& arrays, int64_t first_query,
                 int64_t end_query) {
  const int64_t queries = NumQueries(task);
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

// tile_out of queries [query, query + count): values of the tile's keys by their weights. A pair
// that is half inside is taken without its other half, which may be anything.
void SumByDots(const AttentionTask& task, const TaskArrays& arrays, const KeyRange& keys,
               int64_t query, int64_t count) {
  const auto [first, last] = keys;
  const int64_t queries = NumQueries(task);
  const U32Tag d;
  alignas(64) float half[kPanelOutputs];
  for (int64_t panel = 0; panel < NumPanels(task); ++panel) {
    const float* values = arrays.values + panel * kTileKeys / 2 * kPanelOutputs;
    DotArgs dots = {.rows = count,
                    .sums = arrays.tile_out + (panel * queries + query) * kPanelOutputs};
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

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
