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

__attribute__((target("avx512f,avx512vnni"))) void ByteDotLoop() {
  __m512i sums[kSums] = {};
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], x, x);
      asm volatile("" : "+v"(sums[i]));
    }
  }
}

__attribute__((target("avx2"))) void NarrowByteLoop() {
  __m256i sums[kSums] = {};
  const __m256i x = _mm256_set1_epi8(1);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      __m256i words = _mm256_maddubs_epi16(x, x);
      asm volatile("" : "+x"(words));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(words, x));
      asm volatile("" : "+x"(sums[i]));
    }
  }
}

struct Loop {
  int64_t operations = 0;  // of a sum in a step
  void (*run)() = nullptr;
};

Loop LoopOf(const PeakLoop& loop) {
  const bool has_dots = loop.target == "AVX3_BF16";
  if (loop.compute == ComputeType::kInt8) {
    return has_dots ? Loop{128, ByteDotLoop} : Loop{64, NarrowByteLoop};
  }
  if (loop.compute == ComputeType::kBF16 && has_dots) return {64, DotLoop};
  return loop.target.rfind("AVX3", 0) == 0 ? Loop{32, WideLoop} : Loop{16, NarrowLoop};
}

}  // namespace

int64_t PeakLoopFlops(const PeakLoop& loop) {
  return kSteps * kSums * LoopOf(loop).operations;
}

void RunPeakLoop(const PeakLoop& loop, WorkerPool& pool) {
  pool.ParallelFor(pool.num_threads(), [&](int64_t, int) { LoopOf(loop).run(); });
}

}  // namespace nightshift
