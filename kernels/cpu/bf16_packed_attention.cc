#include "kernels/cpu/bf16_packed_attention.h"

#include <algorithm>

#include <immintrin.h>

#include "kernels/kv_page.h"

// gcc 12's own intrinsics start from a register that is not set and that no lane is taken of
// (gcc bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// Functions of this file run only where HasBF16Dots(); the rest of the build has no such target.
#define BF16_DOTS_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define BF16_DOTS_INLINE BF16_DOTS_TARGET __attribute__((always_inline)) inline

namespace nightshift::cpu {
namespace {

constexpr int64_t kLanes = 16;
// Codes lie in blocks of this many keys, or dimensions.
constexpr int64_t kBlock = 8;
constexpr int64_t kBlockPairs = kBlock / 2;

// The bf16 of the codes 0 to 15, twice: a lookup takes five bits, of which the fifth is the next
// code's.
BF16_DOTS_INLINE __m512i CodeTable() {
  const __m512 low = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(low, low));
}

// The codes of one pair, of 16 keys or columns, as dots take them. `block` has the 4-bit codes of
// all pairs of the block.
template <int kPair>
BF16_DOTS_INLINE __m512i PairOf4Bits(__m512i block, __m512i table) {
  const __m512i index = kPair == 0 ? block : _mm512_srli_epi32(block, 4 * kPair);
  return _mm512_permutexvar_epi16(index, table);
}

BF16_DOTS_INLINE __m512 WidenBytes(const std::byte* codes) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

// The upper halves of whole numbers below 256 are their bf16: `table` takes them, which is cheaper
// than a conversion.
BF16_DOTS_INLINE __m512i PairOf8Bits(const std::byte* codes, __m512i table) {
  return _mm512_permutex2var_epi16(_mm512_castps_si512(WidenBytes(codes)), table,
                                   _mm512_castps_si512(WidenBytes(codes + 16)));
}

// What a kernel looks codes up by.
template <int kBits>
BF16_DOTS_INLINE __m512i TableOf() {
  if constexpr (kBits == 4) {
    return CodeTable();
  } else {
    const __m512i low = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    // Words 4i + 1 and 4i + 3 of the two vectors, as neighbours.
    const __m512i words = _mm512_or_si512(_mm512_slli_epi32(low, 2), _mm512_slli_epi32(low, 18));
    return _mm512_add_epi32(words, _mm512_set1_epi32(0x00030001));
  }
}

// sums[v][r] += codes of a block of 8 by the pairs of factors. Vector v's codes begin at at[v];
// of 8 bits the rows of pairs are `pair_bytes` apart. Factor of pair p and row r:
// factors[p * kPairStride + r * kRowStride].
template <int kBits, int kVectors, int kRows, int kPairStride, int kRowStride>
BF16_DOTS_INLINE void AddBlock(const std::byte* const (&at)[kVectors], int64_t pair_bytes,
                               __m512i table, const int32_t* factors,
                               __m512 (&sums)[kVectors][kRows]) {
  __m512i blocks[kVectors];
  if constexpr (kBits == 4) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      blocks[v] = _mm512_loadu_si512(at[v]);
    }
  }
  const auto add = [&]<int kPair>() BF16_DOTS_TARGET {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      __m512i codes;
      if constexpr (kBits == 4) {
        codes = PairOf4Bits<kPair>(blocks[v], table);
      } else {
        codes = PairOf8Bits(at[v] + kPair * pair_bytes, table);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i factor = _mm512_set1_epi32(factors[kPair * kPairStride + r * kRowStride]);
        sums[v][r] = _mm512_dpbf16_ps(sums[v][r], reinterpret_cast<__m512bh>(codes),
                                      reinterpret_cast<__m512bh>(factor));
      }
    }
  };
  add.template operator()<0>();
  add.template operator()<1>();
  add.template operator()<2>();
  add.template operator()<3>();
}

BF16_DOTS_INLINE void Fetch(const std::byte* from, int64_t bytes) {
  if (from == nullptr) return;
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(from + i, 0, 2);
  }
}

template <int kBits, int kPages, int kQueries>
BF16_DOTS_TARGET void ScoreKeys(const PackedKeyDots& args) {
  constexpr int kVectors = 2 * kPages;
  constexpr int64_t kPairBytes = 2 * kPagePositions;
  constexpr int64_t kBlockBytes = kBits == 4 ? 4 * kPagePositions : kBlockPairs * kPairBytes;
  constexpr int64_t kVectorBytes = kBits == 4 ? 4 * kLanes : 2 * kLanes;
  const __m512i table = TableOf<kBits>();
  const auto* q = reinterpret_cast<const int32_t*>(args.q);
  const std::byte* at[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    at[v] = args.codes[v / 2] + v % 2 * kVectorBytes;
  }
  int64_t done = 0;
  for (int64_t first = 0; first < args.width; first += kKvGroup) {
    __m512 parts[kVectors][kQueries];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int query = 0; query < kQueries; ++query) {
        parts[v][query] = _mm512_setzero_ps();
      }
    }
    const int64_t end = std::min(first + kKvGroup, args.width);
    for (int64_t d = first; d < end; d += kBlock, q += kBlockPairs * kQueries) {
      AddBlock<kBits, kVectors, kQueries, kQueries, 1>(at, kPairBytes, table, q, parts);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        at[v] += kBlockBytes;
      }
#pragma GCC unroll 2
      for (int page = 0; page < kPages; ++page) {
        if (args.next[page] != nullptr) Fetch(args.next[page] + done, kBlockBytes);
      }
      done += kBlockBytes;
    }
    const int64_t group = first / kKvGroup;
    const float* numbers = args.numbers + group * 2 * kTileKeys;
    const float* q_sums = args.q_sums + group * args.sums_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = _mm512_load_ps(numbers + v * kLanes);
      const __m512 minimum = _mm512_load_ps(numbers + kTileKeys + v * kLanes);
#pragma GCC unroll 8
      for (int query = 0; query < kQueries; ++query) {
        float* scores = args.scores + query * kTileKeys + v * kLanes;
        const __m512 before = first == 0 ? _mm512_setzero_ps() : _mm512_load_ps(scores);
        const __m512 scaled = _mm512_fmadd_ps(scale, parts[v][query], before);
        _mm512_store_ps(scores, _mm512_fmadd_ps(minimum, _mm512_set1_ps(q_sums[query]), scaled));
      }
    }
  }
}

// Some vectors of columns, from args.codes[] + `column` on.
template <int kBits, int kRows, int kVectors>
BF16_DOTS_INLINE void SumColumns(const PackedValueDots& args, int64_t column, __m512i table) {
  constexpr int64_t kVectorBytes = kBits == 4 ? 4 * kLanes : 2 * kLanes;
  const int64_t pair_bytes = 2 * args.width;
  const int64_t block_bytes = kBits == 4 ? 4 * args.width : kBlockPairs * pair_bytes;
  const int64_t column_bytes = kBits == 4 ? 4 : 2;
  __m512 sums[kVectors][kRows];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[v][r] = _mm512_setzero_ps();
    }
  }
  for (int64_t page = 0; page < 2; ++page) {
    const int64_t begin = page * kPagePositions;
    const int64_t first = std::max(args.first, begin) / kBlock * kBlock;
    const int64_t last = std::min(args.last, begin + kPagePositions);
    if (first >= last) continue;
    const int64_t skipped = (first - begin) / kBlock * block_bytes + column * column_bytes;
    const std::byte* codes = args.codes[page] + skipped;
    const std::byte* next = args.next[page] == nullptr ? nullptr : args.next[page] + skipped;
    for (int64_t key = first; key < last; key += kBlock) {
      const std::byte* at[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        at[v] = codes + v * kVectorBytes;
      }
      AddBlock<kBits, kVectors, kRows, 1, kTileKeys / 2>(
          at, pair_bytes, table, reinterpret_cast<const int32_t*>(args.weights) + key / 2, sums);
      codes += block_bytes;
      if (next != nullptr) {
        if constexpr (kBits == 4) {
          Fetch(next, kVectors * kVectorBytes);
        } else {
          for (int64_t pair = 0; pair < kBlockPairs; ++pair) {
            Fetch(next + pair * pair_bytes, kVectors * kVectorBytes);
          }
        }
        next += block_bytes;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512 base = _mm512_set1_ps(args.base[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_store_ps(args.out + r * kPanelOutputs + column + v * kLanes,
                      _mm512_add_ps(sums[v][r], base));
    }
  }
}

template <int kBits, int kRows>
BF16_DOTS_TARGET void SumRows(const PackedValueDots& args) {
  // What leaves room for a factor and codes beside the sums.
  constexpr int kWide = kRows <= 4 ? 4 : 2;
  const __m512i table = TableOf<kBits>();
  int64_t column = 0;
  for (; column + kWide * kLanes <= args.columns; column += kWide * kLanes) {
    SumColumns<kBits, kRows, kWide>(args, column, table);
  }
  for (; column < args.columns; column += kLanes) {
    SumColumns<kBits, kRows, 1>(args, column, table);
  }
}

using ScoreKernel = void (*)(const PackedKeyDots&);
using SumKernel = void (*)(const PackedValueDots&);

// Two pages at one time where that leaves registers: sums of one would wait for each other.
template <int kBits>
void ScoreByPages(const PackedKeyDots& args) {
  static constexpr ScoreKernel kOne[] = {
      nullptr,
      ScoreKeys<kBits, 1, 1>,
      ScoreKeys<kBits, 1, 2>,
      ScoreKeys<kBits, 1, 3>,
      ScoreKeys<kBits, 1, 4>,
      ScoreKeys<kBits, 1, 5>,
      ScoreKeys<kBits, 1, 6>,
      ScoreKeys<kBits, 1, 7>,
      ScoreKeys<kBits, 1, 8>};
  static constexpr ScoreKernel kTwo[] = {nullptr, ScoreKeys<kBits, 2, 1>, ScoreKeys<kBits, 2, 2>,
                                         ScoreKeys<kBits, 2, 3>, ScoreKeys<kBits, 2, 4>};
  if (args.num_pages == 1) {
    kOne[args.queries](args);
    return;
  }
  if (args.queries <= 4) {
    kTwo[args.queries](args);
    return;
  }
  for (int64_t page = 0; page < 2; ++page) {
    PackedKeyDots one = args;
    one.num_pages = 1;
    one.codes[0] = args.codes[page];
    one.next[0] = args.next[page];
    one.numbers += page * kPagePositions;
    one.scores += page * kPagePositions;
    kOne[args.queries](one);
  }
}

template <int kBits>
void SumByRows(const PackedValueDots& args) {
  static constexpr SumKernel kKernels[] = {nullptr,           SumRows<kBits, 1>, SumRows<kBits, 2>,
                                           SumRows<kBits, 3>, SumRows<kBits, 4>, SumRows<kBits, 5>,
                                           SumRows<kBits, 6>, SumRows<kBits, 7>, SumRows<kBits, 8>};
  kKernels[args.rows](args);
}

}  // namespace

BF16_DOTS_TARGET void WeighPackedDots(const PackedWeightDots& args) {
  constexpr int kVectors = kTileKeys / kLanes;
  const uint64_t before_last = args.last == 64 ? ~uint64_t{0} : (uint64_t{1} << args.last) - 1;
  const uint64_t seen = before_last >> args.first << args.first;
  __mmask16 masks[kVectors];
  __m512 scales[kVectors];
  __m512 minimums[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    masks[v] = static_cast<__mmask16>(seen >> (v * kLanes));
    scales[v] = _mm512_load_ps(args.numbers + v * kLanes);
    minimums[v] = _mm512_load_ps(args.numbers + kTileKeys + v * kLanes);
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* weights = args.weights + row * kTileKeys;
    float* scaled = args.scaled + row * kTileKeys / 2;
    __m512 base = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 weight = _mm512_load_ps(weights + v * kLanes);
      const __m512 product = _mm512_maskz_mul_ps(masks[v], weight, scales[v]);
      base = _mm512_mask3_fmadd_ps(weight, minimums[v], base, masks[v]);
      _mm256_store_si256(reinterpret_cast<__m256i*>(scaled + v * kLanes / 2),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(product)));
    }
    args.bases[row] = _mm512_reduce_add_ps(base);
  }
}

void ScorePackedDots(const PackedKeyDots& args) {
  args.bits == 4 ? ScoreByPages<4>(args) : ScoreByPages<8>(args);
}

void SumPackedDots(const PackedValueDots& args) {
  args.bits == 4 ? SumByRows<4>(args) : SumByRows<8>(args);
}

}  // namespace nightshift::cpu
