// GroupDotKernel of bf16_dots.h.
#include <algorithm>
#include <utility>

#include <immintrin.h>

#include "kernels/cpu/bf16_dots.h"

// gcc 12's own intrinsics start from a register that is not set and that no lane is taken of
// (gcc bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Functions of this file run only where HasBF16Dots(); the rest of the build has no such target.
#define BF16_DOTS_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi")))
#define BF16_DOTS_INLINE BF16_DOTS_TARGET __attribute__((always_inline)) inline

namespace nightshift::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int kPanelVectors = 4;
// Beyond, a block that is expanded once costs less than x being read by parts of the panel's width.
constexpr int64_t kMostInPlace = 12;

// What turns codes of a group into weights, of some vectors of outputs.
template <int kVectors>
struct GroupNumbers {
  __m512 scales[kVectors];
  __m512 minimums[kVectors];
};

BF16_DOTS_INLINE __m512 LoadHalves(const std::byte* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

template <class Kind, int kVectors>
BF16_DOTS_INLINE void ReadNumbers(const GroupBlock& block, int64_t input, int64_t n,
                                  GroupNumbers<kVectors>& numbers) {
  const std::byte* of_group = block.panel + (input / block.format.group * kPanelOutputs + n) * 2;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    numbers.scales[v] = LoadHalves(of_group + block.planes.scales + v * 32);
    if constexpr (Kind::kHasMinimum) {
      numbers.minimums[v] = LoadHalves(of_group + block.planes.minimums + v * 32);
    }
  }
}

// The number that each 4-bit code stands for before its scale.
template <class Kind>
BF16_DOTS_INLINE __m512 CodeTable() {
  constexpr float kFirst = Kind::kSigned ? -8.0F : 0.0F;
  return _mm512_add_ps(_mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                       _mm512_set1_ps(kFirst));
}

// Codes of a pair of inputs of 16 outputs, as f32.
template <class Kind>
BF16_DOTS_INLINE void LoadCodes(const std::byte* codes, [[maybe_unused]] __m512 table, __m512& even,
                                __m512& odd) {
  if constexpr (Kind::kBits == 4) {
    // A lookup takes the low four bits of its lane and no others.
    const __m512i pairs =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    even = _mm512_permutexvar_ps(pairs, table);
    odd = _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), table);
  } else {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    if constexpr (Kind::kSigned) {
      const __m512i pairs = _mm512_cvtepi16_epi32(words);
      even = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 24), 24));
      odd = _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 8));
    } else {
      const __m512i pairs = _mm512_cvtepu16_epi32(words);
      even = _mm512_cvtepi32_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(255)));
      odd = _mm512_cvtepi32_ps(_mm512_srli_epi32(pairs, 8));
    }
  }
}

// Constants that stay in registers.
struct Constants {
  __m512 table;
  __m512i interleave;  // words of the low half with those of the high half
};

template <class Kind>
BF16_DOTS_INLINE Constants MakeConstants() {
  const __m512i low = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i high = _mm512_slli_epi32(_mm512_add_epi32(low, _mm512_set1_epi32(16)), 16);
  return {CodeTable<Kind>(), _mm512_or_si512(low, high)};
}

// The weights of a pair of inputs of 16 outputs, as dots take them.
template <class Kind>
BF16_DOTS_INLINE __m512i MakeWeights(const std::byte* codes, __m512 scale, __m512 minimum,
                                     const Constants& constants) {
  __m512 even;
  __m512 odd;
  LoadCodes<Kind>(codes, constants.table, even, odd);
  if constexpr (Kind::kHasMinimum) {
    // The product is exact, so the sum rounds once.
    even = _mm512_fmadd_ps(even, scale, minimum);
    odd = _mm512_fmadd_ps(odd, scale, minimum);
  } else {
    even = _mm512_mul_ps(even, scale);
    odd = _mm512_mul_ps(odd, scale);
  }
  const __m512bh rounded = _mm512_cvtne2ps_pbh(odd, even);
  return _mm512_permutexvar_epi16(constants.interleave, reinterpret_cast<__m512i>(rounded));
}

template <class Kind>
BF16_DOTS_INLINE const std::byte* CodesOf(const GroupBlock& block, int64_t n) {
  return block.panel + (block.first_input / 2 * kPanelOutputs + n) * Kind::kPairBytes;
}

// bf16 [K/2][64][2].
template <class Kind>
BF16_DOTS_TARGET void ExpandOf(const GroupBlock& block, std::byte* target) {
  const Constants constants = MakeConstants<Kind>();
  const int64_t group_pairs = block.format.group / 2;
  const std::byte* codes = CodesOf<Kind>(block, 0);
  for (int64_t first = 0; first < block.pairs; first += group_pairs) {
    GroupNumbers<kPanelVectors> numbers = {};
    ReadNumbers<Kind>(block, block.first_input + 2 * first, 0, numbers);
    const int64_t count = std::min(group_pairs, block.pairs - first);
    for (int64_t pair = 0; pair < count; ++pair) {
#pragma GCC unroll 4
      for (int v = 0; v < kPanelVectors; ++v) {
        _mm512_store_si512(
            target, MakeWeights<Kind>(codes, numbers.scales[v], numbers.minimums[v], constants));
        target += 64;
        codes += kLanes * Kind::kPairBytes;
      }
    }
  }
  if (block.first_input + 2 * block.pairs > block.inputs) {
    auto* last = reinterpret_cast<uint32_t*>(target - 4 * kPanelOutputs);
    for (int64_t n = 0; n < kPanelOutputs; ++n) {
      last[n] &= 0xffffU;
    }
  }
}

// Rows by some vectors of outputs, from output n of the panel on.
template <class Kind, int kRows, int kVectors>
BF16_DOTS_INLINE void MultiplyPart(const TileArgs& args, const GroupBlock& block, int64_t n) {
  float* const part_sums = args.sums + n;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = args.starts ? _mm512_setzero_ps()
                               : _mm512_load_ps(part_sums + r * kPanelOutputs + v * kLanes);
    }
  }
  const Constants constants = MakeConstants<Kind>();
  const int64_t group_pairs = block.format.group / 2;
  const auto* rows = reinterpret_cast<const int32_t*>(args.x);
  const std::byte* codes = CodesOf<Kind>(block, n);
  constexpr int64_t kSegmentPairs = kSegmentInputs / 2;
  for (int64_t first = 0; first < block.pairs; first += group_pairs) {
    GroupNumbers<kVectors> numbers = {};
    ReadNumbers<Kind>(block, block.first_input + 2 * first, n, numbers);
    const int64_t count = std::min(group_pairs, block.pairs - first);
    // A group lies in one segment of the rows.
    const int32_t* x = rows + first / kSegmentPairs * kSegmentPairs * kRows + first % kSegmentPairs;
    for (int64_t pair = 0; pair < count; ++pair, ++x) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const __m512i weights =
            MakeWeights<Kind>(codes + v * kLanes * Kind::kPairBytes, numbers.scales[v],
                              numbers.minimums[v], constants);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          sums[r][v] =
              _mm512_dpbf16_ps(sums[r][v], reinterpret_cast<__m512bh>(weights),
                               reinterpret_cast<__m512bh>(_mm512_set1_epi32(x[r * kSegmentPairs])));
        }
      }
      codes += kPanelOutputs * Kind::kPairBytes;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_store_ps(part_sums + r * kPanelOutputs + v * kLanes, sums[r][v]);
    }
  }
}

// As many vectors as leave room for scales and minimums beside the sums.
template <class Kind, int kRows>
BF16_DOTS_TARGET void MultiplyRows(const TileArgs& args, const GroupBlock& block) {
  constexpr int kVectors = kRows <= 4 ? 4 : kRows <= 10 ? 2 : 1;
  for (int64_t n = 0; n < kPanelOutputs; n += kVectors * kLanes) {
    MultiplyPart<Kind, kRows, kVectors>(args, block, n);
  }
}

template <class Kind, int... kRowsLessOne>
void MultiplyByRows(const TileArgs& args, const GroupBlock& block, int64_t rows,
                    std::integer_sequence<int, kRowsLessOne...> /*all*/) {
  using Rows = void (*)(const TileArgs&, const GroupBlock&);
  static constexpr Rows kByRows[] = {MultiplyRows<Kind, kRowsLessOne + 1>...};
  kByRows[rows - 1](args, block);
}

template <class Kind>
void MultiplyOf(const TileArgs& args, const GroupBlock& block, int64_t rows) {
  MultiplyByRows<Kind>(args, block, rows, std::make_integer_sequence<int, kMostInPlace>());
}

void Expand(const GroupBlock& block, int64_t /*width*/, std::byte* target) {
  WithCodes(block.format, [&](auto kind) { ExpandOf<decltype(kind)>(block, target); });
}

void Multiply(const TileArgs& args, const GroupBlock& block, int64_t rows) {
  WithCodes(block.format, [&](auto kind) { MultiplyOf<decltype(kind)>(args, block, rows); });
}

}  // namespace

const GroupKernel& GroupDotKernel() {
  static const GroupKernel kKernel = {
      .expand = Expand, .most_in_place = kMostInPlace, .multiply = Multiply};
  return kKernel;
}

}  // namespace nightshift::cpu
