#include "kernels/cpu/bf16_dots.h"

#include <algorithm>

#include <hwy/targets.h>
#include <immintrin.h>

// Functions of this file run only where HasBF16Dots(); the rest of the build has no such target.
#define BF16_DOTS_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace nightshift::cpu {
namespace {

// 16 sums of pairs: lane += w.even * x.even + w.odd * x.odd.
BF16_DOTS_TARGET inline __m512 AddDots(__m512 sums, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
}

// The 64 outputs of a panel are 4 vectors; 6 rows of them, the weights and an input take 29 of 32
// registers.
template <int kRows>
BF16_DOTS_TARGET void DotTile(const TileArgs& args) {
  constexpr int kVectors = 4;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = args.starts ? _mm512_setzero_ps()
                               : _mm512_load_ps(args.sums + r * kPanelOutputs + v * 16);
    }
  }
  const auto* x = reinterpret_cast<const int32_t*>(args.x);
  const std::byte* weights = args.weights;
  for (int64_t left = args.pairs; left > 0; left -= kSegmentInputs / 2) {
    const int64_t pairs = std::min(left, kSegmentInputs / 2);
    for (int64_t pair = 0; pair < pairs; ++pair, ++x, weights += 4 * kPanelOutputs) {
      __m512i w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        w[v] = _mm512_load_si512(weights + v * 64);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i factor = _mm512_set1_epi32(x[r * (kSegmentInputs / 2)]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = AddDots(sums[r][v], w[v], factor);
        }
      }
    }
    x += (kRows - 1) * (kSegmentInputs / 2);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      _mm512_store_ps(args.sums + r * kPanelOutputs + v * 16, sums[r][v]);
    }
  }
}

}  // namespace

bool HasBF16Dots() {
  return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0 &&
         __builtin_cpu_supports("avx512bf16") != 0;
}

const TileKernel& BF16DotKernel() {
  static const TileKernel kKernel = {.rows_in_place = 6,
                                     .input_bytes = 2,
                                     .in_place = {nullptr, DotTile<1>, DotTile<2>, DotTile<3>,
                                                  DotTile<4>, DotTile<5>, DotTile<6>}};
  return kKernel;
}

}  // namespace nightshift::cpu
