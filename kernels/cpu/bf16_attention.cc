#include "kernels/cpu/bf16_attention.h"

#include <algorithm>

#include <immintrin.h>

#include "kernels/kv_page.h"

// Functions of this file run only where HasBF16Dots(); the rest of the build has no such target.
#define BF16_DOTS_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace nightshift::cpu {
namespace {

// columns[c] = pair c of 16 rows, `stride` bytes apart; pairs that `mask` lacks are not read.
BF16_DOTS_TARGET inline __attribute__((always_inline)) void LoadColumns(const std::byte* rows,
                                                                        int64_t stride,
                                                                        __mmask16 mask,
                                                                        __m512 (&columns)[16]) {
  __m512 a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512 even = _mm512_maskz_loadu_ps(mask, rows + 2 * i * stride);
    const __m512 odd = _mm512_maskz_loadu_ps(mask, rows + (2 * i + 1) * stride);
    a[2 * i] = _mm512_maskz_unpacklo_ps(0xffff, even, odd);
    a[2 * i + 1] = _mm512_maskz_unpackhi_ps(0xffff, even, odd);
  }
  // b[4 i + c], 128-bit lane l: pair 4 l + c of rows 4 i to 4 i + 3.
  __m512 b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4) {
    const auto low = [&](int x, int y) BF16_DOTS_TARGET {
      return _mm512_castpd_ps(
          _mm512_maskz_unpacklo_pd(0xff, _mm512_castps_pd(a[i + x]), _mm512_castps_pd(a[i + y])));
    };
    const auto high = [&](int x, int y) BF16_DOTS_TARGET {
      return _mm512_castpd_ps(
          _mm512_maskz_unpackhi_pd(0xff, _mm512_castps_pd(a[i + x]), _mm512_castps_pd(a[i + y])));
    };
    b[i] = low(0, 2);
    b[i + 1] = high(0, 2);
    b[i + 2] = low(1, 3);
    b[i + 3] = high(1, 3);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_maskz_shuffle_f32x4(0xffff, b[c], b[4 + c], 0x44);
    const __m512 low23 = _mm512_maskz_shuffle_f32x4(0xffff, b[8 + c], b[12 + c], 0x44);
    const __m512 high01 = _mm512_maskz_shuffle_f32x4(0xffff, b[c], b[4 + c], 0xee);
    const __m512 high23 = _mm512_maskz_shuffle_f32x4(0xffff, b[8 + c], b[12 + c], 0xee);
    columns[c] = _mm512_maskz_shuffle_f32x4(0xffff, low01, low23, 0x88);
    columns[4 + c] = _mm512_maskz_shuffle_f32x4(0xffff, low01, low23, 0xdd);
    columns[8 + c] = _mm512_maskz_shuffle_f32x4(0xffff, high01, high23, 0x88);
    columns[12 + c] = _mm512_maskz_shuffle_f32x4(0xffff, high01, high23, 0xdd);
  }
}

template <int kQueries>
BF16_DOTS_TARGET void ScoreKeys(const KeyDotArgs& args) {
  __m512 sums[kQueries];
#pragma GCC unroll 8
  for (int query = 0; query < kQueries; ++query) {
    sums[query] = _mm512_setzero_ps();
  }
  const int64_t stride = 4 * args.pairs;
  const auto* q = reinterpret_cast<const int32_t*>(args.q);
  for (int64_t pair = 0; pair < args.pairs; pair += 16) {
    const bool is_whole = pair + 16 <= args.pairs;
    __m512 columns[16];
    LoadColumns(args.keys + 4 * pair, stride, is_whole ? 0xffff : 0x00ff, columns);
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) {
      if (c == 8 && !is_whole) break;
      __builtin_prefetch(args.next_keys + (pair + c) * 64, 0, 2);
      __builtin_prefetch(args.keys + kDotKeys * stride + (pair + c) * 64);
      if (c % 2 == 0 && args.next_values != nullptr) {
        __builtin_prefetch(args.next_values + (pair + c) * 32, 0, 2);
      }
#pragma GCC unroll 8
      for (int query = 0; query < kQueries; ++query) {
        sums[query] = _mm512_dpbf16_ps(sums[query], reinterpret_cast<__m512bh>(columns[c]),
                                       reinterpret_cast<__m512bh>(_mm512_set1_epi32(*q)));
        ++q;
      }
    }
  }
#pragma GCC unroll 8
  for (int query = 0; query < kQueries; ++query) {
    _mm512_store_ps(args.scores + query * kTileKeys, sums[query]);
  }
}

// Rows of values that are fetched into the first-level cache before their turn.
constexpr int64_t kNearRows = 8;

// The lanes of a panel's 64 columns that exist.
struct ColumnMasks {
  __mmask32 low = 0;
  __mmask32 high = 0;
};

ColumnMasks MasksOf(int64_t columns) {
  const uint64_t mask = columns == 64 ? ~uint64_t{0} : (uint64_t{1} << columns) - 1;
  return {static_cast<__mmask32>(mask), static_cast<__mmask32>(mask >> 32)};
}

template <int kRows>
struct ValueSums {
  // Interleaving works on 128-bit lanes: vectors 2i and 2i + 1 hold columns 32i to 32i + 31, fours
  // in turn.
  __m512 at[kRows][4];
};

// Adds the pair of rows `even` and `odd` of values.
template <int kRows>
BF16_DOTS_TARGET inline __attribute__((always_inline)) void AddPair(
    const std::byte* even, const std::byte* odd, const ColumnMasks& even_masks,
    const ColumnMasks& odd_masks, const int32_t* weights, ValueSums<kRows>& sums) {
  const __m512i even_low = _mm512_maskz_loadu_epi16(even_masks.low, even);
  const __m512i even_high = _mm512_maskz_loadu_epi16(even_masks.high, even + 64);
  const __m512i odd_low = _mm512_maskz_loadu_epi16(odd_masks.low, odd);
  const __m512i odd_high = _mm512_maskz_loadu_epi16(odd_masks.high, odd + 64);
  const __m512i pairs[4] = {
      _mm512_unpacklo_epi16(even_low, odd_low), _mm512_unpackhi_epi16(even_low, odd_low),
      _mm512_unpacklo_epi16(even_high, odd_high), _mm512_unpackhi_epi16(even_high, odd_high)};
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    const __m512i weight = _mm512_set1_epi32(weights[row * (kTileKeys / 2)]);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sums.at[row][v] = _mm512_dpbf16_ps(sums.at[row][v], reinterpret_cast<__m512bh>(pairs[v]),
                                         reinterpret_cast<__m512bh>(weight));
    }
  }
}

template <int kRows>
BF16_DOTS_TARGET void SumRows(const ValueDotArgs& args) {
  ValueSums<kRows> sums;
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sums.at[row][v] = _mm512_setzero_ps();
    }
  }
  const ColumnMasks all = MasksOf(args.columns);
  const ColumnMasks none;
  const int64_t row_bytes = 2 * args.width;
  for (int64_t page = 0; page < 2; ++page) {
    const int64_t first_key = page * kPagePositions;
    const int64_t first = std::max(args.first, first_key);
    const int64_t last = std::min(args.last, first_key + kPagePositions);
    if (first >= last) continue;
    const auto* weights = reinterpret_cast<const int32_t*>(args.weights) + first / 2;
    const std::byte* rows = args.pages[page] + (first / 2 * 2 - first_key) * row_bytes;
    int64_t key = first;
    if (first % 2 == 1) {
      AddPair<kRows>(rows, rows + row_bytes, none, all, weights, sums);
      ++key;
      ++weights;
      rows += 2 * row_bytes;
    }
    for (; key + 2 <= last; key += 2, ++weights, rows += 2 * row_bytes) {
      for (int64_t i = 0; i < 128; i += 64) {
        __builtin_prefetch(rows + kNearRows * row_bytes + i);
        __builtin_prefetch(rows + (kNearRows + 1) * row_bytes + i);
      }
      if (args.next[page] != nullptr) {
        const std::byte* next = args.next[page] + (key - first_key) * 64;
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + 64, 0, 2);
      }
      AddPair<kRows>(rows, rows + row_bytes, all, all, weights, sums);
    }
    if (key < last) AddPair<kRows>(rows, rows, all, none, weights, sums);
  }
  // Two registers of fours in turn -> two in order.
  const __m512i first_half =
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second_half =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512 even = sums.at[row][2 * half];
      const __m512 odd = sums.at[row][2 * half + 1];
      float* out = args.out + row * 64 + half * 32;
      _mm512_store_ps(out, _mm512_permutex2var_ps(even, first_half, odd));
      _mm512_store_ps(out + 16, _mm512_permutex2var_ps(even, second_half, odd));
    }
  }
}

}  // namespace

void ScoreKeyDots(const KeyDotArgs& args) {
  static constexpr void (*kKernels[])(const KeyDotArgs&) = {
      nullptr,      ScoreKeys<1>, ScoreKeys<2>, ScoreKeys<3>, ScoreKeys<4>,
      ScoreKeys<5>, ScoreKeys<6>, ScoreKeys<7>, ScoreKeys<8>};
  kKernels[args.queries](args);
}

void SumValueDots(const ValueDotArgs& args) {
  static constexpr void (*kKernels[])(const ValueDotArgs&) = {nullptr, SumRows<1>, SumRows<2>,
                                                              SumRows<3>, SumRows<4>};
  kKernels[args.rows](args);
}

}  // namespace nightshift::cpu
