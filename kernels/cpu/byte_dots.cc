// The kernels of byte_tile.h by VPDPBUSD: a lane takes the products of four unsigned and four
// signed bytes.
#include <algorithm>

#include <hwy/targets.h>
#include <immintrin.h>

#include "kernels/cpu/byte_tile.h"

// gcc 12's own intrinsics start from a register that is not set and that no lane is taken of
// (gcc bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Functions of this file run only where HasByteDots(); the rest of the build has no such target.
#define BYTE_DOTS_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define BYTE_DOTS_INLINE BYTE_DOTS_TARGET __attribute__((always_inline)) inline

namespace nightshift::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int kVectors = 4;
constexpr int64_t kQuadBytes = 4 * kPanelOutputs;

// Codes are unsigned here: signed bytes plus 128.
int32_t ZeroOf(const GroupFormat& format) {
  if (format.bits == 4) return format.zero;
  return format.has_minimum ? 0 : 128;
}

// gcc 12 keeps each sum of the intrinsic twice, as it changes its type: half of them in memory.
BYTE_DOTS_INLINE __m512i AddDots(__m512i sums, __m512i weights, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(x));
  return sums;
}

BYTE_DOTS_INLINE __m512i LoadWords(const std::byte* at) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

BYTE_DOTS_INLINE __m512i LoadBytes(const std::byte* at) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

BYTE_DOTS_TARGET void Expand(const GroupBlock& block, int64_t /*width*/, std::byte* target) {
  const int64_t quads = (block.pairs + 1) / 2;
  std::byte* at = target;
  if (block.format.bits == 4) {
    const std::byte* codes = block.panel + block.first_input / 2 * kPanelOutputs;
    const __m512i low = _mm512_set1_epi32(0x000f000f);
    const __m512i high = _mm512_set1_epi32(0x0f000f00);
    for (int64_t quad = 0; quad < quads; ++quad, codes += 2 * kPanelOutputs) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v, at += 64) {
        const __m512i pairs =
            _mm512_or_si512(LoadBytes(codes + v * kLanes),
                            _mm512_slli_epi32(LoadBytes(codes + kPanelOutputs + v * kLanes), 16));
        _mm512_store_si512(
            at, _mm512_or_si512(_mm512_and_si512(pairs, low),
                                _mm512_and_si512(_mm512_slli_epi32(pairs, 4), high)));
      }
    }
  } else {
    const std::byte* codes = block.panel + block.first_input * kPanelOutputs;
    const __m512i flip = _mm512_set1_epi8(block.format.has_minimum ? 0 : -128);
    for (int64_t quad = 0; quad < quads; ++quad, codes += 4 * kPanelOutputs) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v, at += 64) {
        const std::byte* even = codes + v * 2 * kLanes;
        const __m512i four = _mm512_or_si512(
            LoadWords(even), _mm512_slli_epi32(LoadWords(even + 2 * kPanelOutputs), 16));
        _mm512_store_si512(at, _mm512_xor_si512(four, flip));
      }
    }
  }
  WidenNumbers(block, reinterpret_cast<float*>(at));
}

template <int kRows, bool kHasMinimum>
BYTE_DOTS_INLINE void MultiplyGroups(const TileArgs& args) {
  const GroupFormat& format = *args.format;
  const int64_t quads = (args.pairs + 1) / 2;
  const int64_t group_quads = format.group / 4;
  const int64_t groups = (quads + group_quads - 1) / group_quads;
  const std::byte* codes = args.weights;
  const auto* numbers = reinterpret_cast<const float*>(codes + quads * kQuadBytes);
  const int32_t zero = ZeroOf(format);
  const ByteGroup* rows = args.groups;
  const std::byte* next = args.next;
  constexpr int64_t kSegmentQuads = kSegmentInputs / 4;
  for (int64_t first = 0; first < quads; first += group_quads, rows += args.group_stride) {
    const int64_t count = std::min(group_quads, quads - first);
    // A group lies in one segment of the rows.
    const auto* x = reinterpret_cast<const int32_t*>(args.x) +
                    first / kSegmentQuads * kSegmentQuads * kRows + first % kSegmentQuads;
    __m512i sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_set1_epi32(-zero * rows[r].sum);
      }
    }
    for (int64_t quad = 0; quad < count; ++quad, ++x, codes += kQuadBytes) {
      __builtin_prefetch(next, 0, 2);
      __builtin_prefetch(next + 64, 0, 2);
      next += 128;
      __m512i w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        w[v] = _mm512_load_si512(codes + v * 64);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i quads_of_row = _mm512_set1_epi32(x[r * kSegmentQuads]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = AddDots(sums[r][v], w[v], quads_of_row);
        }
      }
    }
    const bool starts = args.starts && first == 0;
    // In the order of the loops above: otherwise gcc 12 keeps the sums in memory.
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512 row_scale = _mm512_set1_ps(rows[r].scale);
      [[maybe_unused]] const __m512 row_sum = _mm512_set1_ps(static_cast<float>(rows[r].sum));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* at = args.sums + r * kPanelOutputs + v * kLanes;
        __m512 value =
            _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][v]), _mm512_loadu_ps(numbers + v * kLanes));
        if constexpr (kHasMinimum) {
          value = _mm512_fmadd_ps(_mm512_loadu_ps(numbers + groups * kPanelOutputs + v * kLanes),
                                  row_sum, value);
        }
        const __m512 old = starts ? _mm512_setzero_ps() : _mm512_load_ps(at);
        _mm512_store_ps(at, _mm512_fmadd_ps(value, row_scale, old));
      }
    }
    numbers += kPanelOutputs;
  }
}

template <int kRows>
BYTE_DOTS_TARGET void MultiplyTileOf(const TileArgs& args) {
  if (args.format->has_minimum) {
    MultiplyGroups<kRows, true>(args);
  } else {
    MultiplyGroups<kRows, false>(args);
  }
}

}  // namespace

bool HasByteDots() {
  return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
}

const TileKernel& ByteDotKernel() {
  static const TileKernel kKernel = {
      .input_bytes = 1,
      .many = {nullptr, MultiplyTileOf<1>, MultiplyTileOf<2>, MultiplyTileOf<3>, MultiplyTileOf<4>,
               MultiplyTileOf<5>, MultiplyTileOf<6>}};
  return kKernel;
}

const GroupKernel& ByteDotGroupKernel() {
  static const GroupKernel kKernel = {.expand = Expand};
  return kKernel;
}

}  // namespace nightshift::cpu
