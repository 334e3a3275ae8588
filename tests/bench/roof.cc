#include "tests/bench/roof.h"

#include <immintrin.h>

namespace nightshift {
namespace {

constexpr int64_t kSteps = 1 << 16;
// Enough independent sums for 2 units of 5 cycles each, as few as 16 registers hold.
constexpr int kSums = 12;

__attribute__((target("avx512f,avx512bf16"))) void DotLoop() {
  __m512 sums[kSums] = {};
  auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
      asm volatile("" : "+v"(sums[i]));  // keeps every step
    }
  }
}

__attribute__((target("avx512f"))) void WideLoop() {
  __m512 sums[kSums] = {};
  const __m512 x = _mm512_set1_ps(1.0F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_fmadd_ps(x, x, sums[i]);
      asm volatile("" : "+v"(sums[i]));
    }
  }
}

__attribute__((target("avx2,fma"))) void NarrowLoop() {
  __m256 sums[kSums] = {};
  const __m256 x = _mm256_set1_ps(1.0F);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm256_fmadd_ps(x, x, sums[i]);
      asm volatile("" : "+x"(sums[i]));
    }
  }
}

bool IsWide(const PeakLoop& loop) {
  return loop.target.rfind("AVX3", 0) == 0;
}

}  // namespace

int64_t PeakLoopFlops(const PeakLoop& loop) {
  return kSteps * kSums * (loop.dots ? 64 : IsWide(loop) ? 32 : 16);
}

void RunPeakLoop(const PeakLoop& loop, WorkerPool& pool) {
  pool.ParallelFor(pool.num_threads(), [&](int64_t, int) {
    if (loop.dots) {
      DotLoop();
    } else if (IsWide(loop)) {
      WideLoop();
    } else {
      NarrowLoop();
    }
  });
}

}  // namespace nightshift
