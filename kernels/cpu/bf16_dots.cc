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
template <int kRows, bool kFetches>
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
  [[maybe_unused]] const std::byte* next = args.next;
  for (int64_t left = args.pairs; left > 0; left -= kSegmentInputs / 2) {
    const int64_t pairs = std::min(left, kSegmentInputs / 2);
    for (int64_t pair = 0; pair < pairs; ++pair, ++x, weights += 4 * kPanelOutputs) {
      if constexpr (kFetches) {
        __builtin_prefetch(next, 0, 2);
        next += 64;
      }
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
  return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}

BF16_DOTS_TARGET void RoundForDots(const float* source, int64_t count, std::byte* target) {
  constexpr int64_t kLanes = 16;
  for (int64_t i = 0; i < kSegmentInputs; i += kLanes) {
    const int64_t part = std::clamp<int64_t>(count - i, 0, kLanes);
    const auto mask = static_cast<__mmask16>((uint32_t{1} << part) - 1);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, source + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + 2 * i),
                        reinterpret_cast<__m256i>(rounded));
  }
}

const TileKernel& BF16DotKernel() {
  static const TileKernel kKernel = {
      .input_bytes = 2,
      .most_few = 8,
      .few = {nullptr, DotTile<1, false>, DotTile<2, false>, DotTile<3, false>, DotTile<4, false>,
              DotTile<5, false>, DotTile<6, false>},
      .many = {nullptr, DotTile<1, true>, DotTile<2, true>, DotTile<3, true>, DotTile<4, true>,
               DotTile<5, true>, DotTile<6, true>}};
  return kKernel;
}

}  // namespace nightshift::cpu
