// Attention over pages of integer groups (kernels/kv_page.h). What is multiplied are codes, which
// are whole numbers; scales and minimums go to the sums of each group of dimensions:
//   score  = sum over groups of scale[key] * (q . codes[key]) + minimum[key] * (sum of q)
//   output = sum over keys of (weight * scale[key]) * codes[key] + sum of weight * minimum[key]
// so a page is never expanded, and nothing but q and (weight * scale) is rounded to bf16 for dots.
// Many queries take codes that are laid out, few take them as they lie: the same products in the
// same order by the same instruction, hence the same bits. Codes are finite whatever a page holds,
// so a key that is not seen weighs 0 and changes no sum.
// Included once per dispatch target, after foreach_target.h.
#if defined(KERNELS_CPU_PACKED_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KERNELS_CPU_PACKED_ATTENTION_INL_H_
#undef KERNELS_CPU_PACKED_ATTENTION_INL_H_
#else
#define KERNELS_CPU_PACKED_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <hwy/highway.h>

#include "kernels/convert.h"
#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/attention_merge-inl.h"
#include "kernels/cpu/attention_multiply-inl.h"
#include "kernels/cpu/attention_scores-inl.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/bf16_packed_attention.h"
#include "kernels/cpu/hadamard.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Keys, or dimensions, whose codes lie together.
constexpr int64_t kCodeBlock = 8;

// Columns of a group that there are, of the padded width.
HWY_INLINE int64_t GroupWidth(const AttentionTask& task, int64_t group) {
  return std::min(kKvGroup, PaddedHeadWidth(*task.args) - group * kKvGroup);
}

// Where a head of the task lies in a page.
struct PackedHead {
  const std::byte* codes = nullptr;
  const std::byte* numbers = nullptr;  // of its first group
};

HWY_INLINE PackedHead HeadIn(const AttentionTask& task, int64_t head, int64_t page,
                             bool is_values) {
  const KvPageLayout& layout = task.args->layout;
  const std::byte* plane =
      task.span->pages[static_cast<size_t>(page)] + (is_values ? layout.plane_bytes() : 0);
  const int64_t kv_head = task.first_head + head;
  return {plane + layout.codes_offset(kv_head), plane + layout.numbers_offset(kv_head, 0)};
}

// Pages [first, last) of a tile, counted from its first, that have keys which a row sees.
struct PageRange {
  int64_t first = 0;
  int64_t last = 0;
};

HWY_INLINE PageRange SeenPages(const KeyTile& tile) {
  return {tile.hidden / kPagePositions, (tile.count + kPagePositions - 1) / kPagePositions};
}

// The same place of the page that follows in the next tile, or null.
HWY_INLINE const std::byte* CodesAhead(const AttentionTask& task, int64_t head, int64_t page,
                                       bool is_values) {
  const int64_t next = NextPage(task, page);
  return next == page ? nullptr : HeadIn(task, head, next, is_values).codes;
}

HWY_INLINE F32Vec LoadHalves(const std::byte* source) {
  const F32Tag d;
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<uint16_t, F32Tag> d16;
  const hn::Rebind<hwy::float16_t, F32Tag> half;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(source));
  return hn::PromoteTo(d, hn::BitCast(half, bits));
#else
  alignas(64) float lanes[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < LaneCount(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, source + 2 * i, sizeof(bits));
    lanes[i] = F16ToF32(bits);
  }
  return hn::Load(d, lanes);
#endif
}

// target [groups][2][64] = scales and minimums of the keys of the tile's pages; of others what was
// there. Fetches those of the next tile.
void LoadNumbers(const AttentionTask& task, const KeyTile& tile, int64_t head, bool is_values,
                 float* target) {
  const PageRange pages = SeenPages(tile);
  for (int64_t in_tile = pages.first; in_tile < pages.last; ++in_tile) {
    const int64_t page = tile.first_key / kPagePositions + in_tile;
    const std::byte* source = HeadIn(task, head, page, is_values).numbers;
    const std::byte* ahead = HeadIn(task, head, NextPage(task, page), is_values).numbers;
    float* lanes = target + in_tile * kPagePositions;
    for (int64_t row = 0; row < 2 * task.args->layout.num_groups(); ++row) {
      __builtin_prefetch(ahead, 0, 2);
      for (int64_t i = 0; i < kPagePositions; i += LaneCount()) {
        hn::Store(LoadHalves(source + 2 * i), F32Tag(), lanes + i);
      }
      source += 2 * kPagePositions;
      ahead += 2 * kPagePositions;
      lanes += kTileKeys;
    }
  }
}

// The codes that the low four bits of each lane are.
HWY_INLINE F32Vec LowCodes(hn::Vec<U32Tag> bits) {
#if HWY_TARGET <= HWY_AVX3
  // A lookup takes four bits and no others.
  const auto table = hn::Iota(F32Tag(), 0.0F);
  return F32Vec{_mm512_permutexvar_ps(bits.raw, table.raw)};
#else
  const hn::RebindToSigned<F32Tag> di;
  return hn::ConvertTo(F32Tag(), hn::BitCast(di, hn::And(bits, hn::Set(U32Tag(), 15))));
#endif
}

// Codes of a pair of LaneCount() keys or columns.
struct CodePair {
  F32Vec even;
  F32Vec odd;
};

// `kBits` 4: `codes` is the block's, of which `bits` holds what is left. 8: the pair's.
template <int kBits>
HWY_INLINE CodePair TakePair([[maybe_unused]] const std::byte* codes,
                             [[maybe_unused]] hn::Vec<U32Tag>& bits) {
  if constexpr (kBits == 4) {
    const CodePair pair = {LowCodes(bits), LowCodes(hn::ShiftRight<16>(bits))};
    bits = hn::ShiftRight<4>(bits);
    return pair;
  } else {
    const hn::RebindToSigned<F32Tag> di;
    const hn::Rebind<uint16_t, F32Tag> words;
    const auto both = hn::PromoteTo(di, hn::LoadU(words, reinterpret_cast<const uint16_t*>(codes)));
    return {hn::ConvertTo(F32Tag(), hn::And(both, hn::Set(di, 255))),
            hn::ConvertTo(F32Tag(), hn::ShiftRight<8>(both))};
  }
}

template <int kBits>
HWY_INLINE hn::Vec<U32Tag> StartBlock([[maybe_unused]] const std::byte* codes) {
  if constexpr (kBits == 4) {
    return hn::LoadU(U32Tag(), reinterpret_cast<const uint32_t*>(codes));
  } else {
    return hn::Zero(U32Tag());
  }
}

// Bytes of a lane in a block's row of 32-bit codes, or in a pair's row of two bytes.
template <int kBits>
constexpr int64_t kLaneBytes = kBits == 4 ? 4 : 2;

// Queries. ----

// Transforms a query's row as keys are, rounds it for dots, or copies it, to `target`, padded with
// zeros to W, and writes the sums of its groups as they are multiplied.
void LoadPackedQuery(const AttentionTask& task, const TaskArrays& arrays, int64_t query,
                     float* target) {
  const F32Tag d;
  const int64_t width = task.args->layout.head_width;
  const int64_t groups = task.args->layout.num_groups();
  const float* row = QueryRow(task, task.args->q, query);
  std::vector<float> source(row, row + width);
  TransformQuery(width, source.data());
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = group * kKvGroup;
    const int64_t count = std::min(kKvGroup, width - first);
    alignas(64) float values[kKvGroup] = {};
    if (task.uses_dots) {
      float* rounded = target + first / 2;
      RoundForDots(source.data() + first, count, reinterpret_cast<std::byte*>(rounded));
      WidenToF32(DType::kBF16, reinterpret_cast<const std::byte*>(rounded), kKvGroup, values);
    } else {
      std::memcpy(values, source.data() + first, static_cast<size_t>(count) * sizeof(float));
      std::memcpy(target + first, values,
                  static_cast<size_t>(GroupWidth(task, group)) * sizeof(float));
    }
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < kKvGroup; i += LaneCount()) {
      sum = hn::Add(sum, hn::Load(d, values + i));
    }
    arrays.q_sums[group * NumQueries(task) + query] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// Depth of a row of queries in place: W, with dots as pairs.
HWY_INLINE int64_t PackedDepth(const AttentionTask& task) {
  const int64_t width = PaddedHeadWidth(*task.args);
  return task.uses_dots ? width / 2 : width;
}

// As [kv head][block][depth][queries of the block].
void LoadPackedInPlace(const AttentionTask& task, const TaskArrays& arrays) {
  const int64_t depth = PackedDepth(task);
  for (int64_t head = 0; head < task.num_heads; ++head) {
    ForEachQueryBlock(task, [&](int64_t first, int64_t count) {
      float* block = arrays.q + (head * HeadQueries(task) + first) * depth;
      for (int64_t i = 0; i < count; ++i) {
        LoadPackedQuery(task, arrays, head * HeadQueries(task) + first + i, arrays.tile_out);
        for (int64_t d = 0; d < depth; ++d) {
          block[d * count + i] = arrays.tile_out[d];
        }
      }
    });
  }
}

// As a task's that lays out its tiles: [Q][W], or with dots [W/64][Q][64].
void LoadPackedLaidOut(const AttentionTask& task, const TaskArrays& arrays) {
  const int64_t queries = NumQueries(task);
  for (int64_t query = 0; query < queries; ++query) {
    LoadPackedQuery(task, arrays, query, arrays.tile_out);
    if (!task.uses_dots) {
      std::copy_n(arrays.tile_out, PackedDepth(task), arrays.q + query * PackedDepth(task));
      continue;
    }
    for (int64_t group = 0; group < NumPanels(task); ++group) {
      std::copy_n(arrays.tile_out + group * 32, 32, arrays.q + (group * queries + query) * 32);
    }
  }
}

// Scores. ----

// Adds a group's part of the scores of a row.
HWY_INLINE F32Vec AddPart(F32Vec part, F32Vec scale, F32Vec minimum, float q_sum, F32Vec before) {
  const auto scaled = hn::MulAdd(scale, part, before);
  return hn::MulAdd(minimum, hn::Set(F32Tag(), q_sum), scaled);
}

struct PackedKeys {
  const std::byte* codes = nullptr;  // of a head in a page
  const std::byte* next = nullptr;   // fetched meanwhile, or null
  int64_t width = 0;
  const float* numbers = nullptr;  // [groups][2][64], at the page's first key
};

// Raw scores with the 32 keys of a page.
template <int kQueries, int kBits>
void ScorePackedPage(const PackedKeys& keys, const float* q_rows, const float* q_sums,
                     int64_t sums_stride, float* scores) {
  constexpr int kVectors = StepVectors(kQueries);
  constexpr int64_t kRowBytes = kPagePositions * kLaneBytes<kBits>;
  const F32Tag d;
  const int64_t lanes = LaneCount();
  for (int64_t key = 0; key < kPagePositions; key += kVectors * lanes) {
    const float* q = q_rows;
    const std::byte* codes = keys.codes + key * kLaneBytes<kBits>;
    const std::byte* next = keys.next == nullptr ? nullptr : keys.next + (codes - keys.codes);
    for (int64_t first = 0; first < keys.width; first += kKvGroup) {
      F32Vec parts[kVectors][kQueries];
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
        HWY_UNROLL(8) for (int query = 0; query < kQueries; ++query) {
          parts[v][query] = hn::Zero(d);
        }
      }
      const int64_t end = std::min(first + kKvGroup, keys.width);
      for (int64_t block = first; block < end; block += kCodeBlock) {
        hn::Vec<U32Tag> bits[kVectors];
        HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
          bits[v] = StartBlock<kBits>(codes + v * lanes * kLaneBytes<kBits>);
        }
        HWY_UNROLL(4) for (int64_t pair = 0; pair < kCodeBlock / 2; ++pair, q += 2 * kQueries) {
          CodePair both[kVectors];
          HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
            both[v] = TakePair<kBits>(codes + v * lanes * kLaneBytes<kBits>, bits[v]);
          }
          HWY_UNROLL(8) for (int query = 0; query < kQueries; ++query) {
            const auto even = hn::Set(d, q[query]);
            const auto odd = hn::Set(d, q[kQueries + query]);
            HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
              parts[v][query] = hn::MulAdd(even, both[v].even, parts[v][query]);
              parts[v][query] = hn::MulAdd(odd, both[v].odd, parts[v][query]);
            }
          }
          if (kBits == 8 || pair == 0) {
            if (next != nullptr) {
              for (int64_t i = 0; i < kVectors * lanes * kLaneBytes<kBits>; i += 64) {
                __builtin_prefetch(next + i, 0, 2);
              }
              next += kRowBytes;
            }
          }
          if (kBits == 8) codes += kRowBytes;
        }
        if (kBits == 4) codes += kRowBytes;
      }
      const int64_t group = first / kKvGroup;
      const float* numbers = keys.numbers + group * 2 * kTileKeys + key;
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
        const auto scale = hn::Load(d, numbers + v * lanes);
        const auto minimum = hn::Load(d, numbers + kTileKeys + v * lanes);
        HWY_UNROLL(8) for (int query = 0; query < kQueries; ++query) {
          float* at = scores + query * kTileKeys + key + v * lanes;
          const auto before = first == 0 ? hn::Zero(d) : hn::Load(d, at);
          hn::Store(AddPart(parts[v][query], scale, minimum, q_sums[group * sums_stride + query],
                            before),
                    d, at);
        }
      }
    }
  }
}

template <int kBits>
void ScorePackedBlock(const PackedKeys& keys, const float* q, const float* q_sums,
                      int64_t sums_stride, int64_t queries, float* scores) {
  using Kernel = void (*)(const PackedKeys&, const float*, const float*, int64_t, float*);
  static constexpr Kernel kKernels[kBlockQueries + 1] = {
      nullptr,
      ScorePackedPage<1, kBits>,
      ScorePackedPage<2, kBits>,
      ScorePackedPage<3, kBits>,
      ScorePackedPage<4, kBits>,
      ScorePackedPage<5, kBits>,
      ScorePackedPage<6, kBits>,
      ScorePackedPage<7, kBits>,
      ScorePackedPage<8, kBits>};
  kKernels[queries](keys, q, q_sums, sums_stride, scores);
}

// Raw scores of a head's queries with the tile's pages, whatever keys there hold.
void ScorePackedInPlace(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile,
                        int64_t head) {
  LoadNumbers(task, tile, head, false, arrays.numbers);
  const PageRange pages = SeenPages(tile);
  const bool is_4_bits = task.args->layout.code_bits() == 4;
  const int64_t width = PaddedHeadWidth(*task.args);
  const int64_t first_page = tile.first_key / kPagePositions + pages.first;
  const float* numbers = arrays.numbers + pages.first * kPagePositions;
  ForEachQueryBlock(task, [&](int64_t first, int64_t count) HWY_ATTR {
    const int64_t query = head * HeadQueries(task) + first;
    const float* q = arrays.q + query * PackedDepth(task);
    const float* q_sums = arrays.q_sums + query;
    float* scores = arrays.scores + query * kTileKeys + pages.first * kPagePositions;
    PackedKeyDots dots = {.bits = is_4_bits ? 4 : 8,
                          .num_pages = pages.last - pages.first,
                          .width = width,
                          .numbers = numbers,
                          .q = q,
                          .q_sums = q_sums,
                          .sums_stride = NumQueries(task),
                          .queries = count,
                          .scores = scores};
    for (int64_t i = 0; i < pages.last - pages.first; ++i) {
      const std::byte* codes = HeadIn(task, head, first_page + i, false).codes;
      const std::byte* next =
          first == 0 ? CodesAhead(task, head, first_page + i, false) : nullptr;
      if (task.uses_dots) {
        dots.codes[i] = codes;
        dots.next[i] = next;
        continue;
      }
      const PackedKeys keys = {.codes = codes,
                               .next = next,
                               .width = width,
                               .numbers = numbers + i * kPagePositions};
      const auto score = is_4_bits ? ScorePackedBlock<4> : ScorePackedBlock<8>;
      score(keys, q, q_sums, NumQueries(task), count, scores + i * kPagePositions);
    }
    if (task.uses_dots) ScorePackedDots(dots);
  });
}

// Raw scores of queries [first_query, end_query) with keys that are laid out.
void ScorePackedLaidOut(const AttentionTask& task, const TaskArrays& arrays, int64_t first_query,
                        int64_t end_query) {
  const F32Tag d;
  const int64_t queries = NumQueries(task);
  const int64_t width = PaddedHeadWidth(*task.args);
  for (int64_t group = 0; group < task.args->layout.num_groups(); ++group) {
    const int64_t first = group * kKvGroup;
    const int64_t count = GroupWidth(task, group);
    if (task.uses_dots) {
      MultiplyDots({.x = arrays.q + (group * queries + first_query) * 32,
                    .rows = end_query - first_query,
                    .panel = arrays.keys + first / 2 * kTileKeys,
                    .pairs = count / 2,
                    .sums = arrays.parts + first_query * kTileKeys});
    } else {
      Multiply(arrays.q + first_query * width + first, width, end_query - first_query,
               arrays.keys + first * kTileKeys, kTileKeys, count,
               arrays.parts + first_query * kTileKeys);
    }
    const float* numbers = arrays.numbers + group * 2 * kTileKeys;
    for (int64_t query = first_query; query < end_query; ++query) {
      const float q_sum = arrays.q_sums[group * queries + query];
      float* scores = arrays.scores + query * kTileKeys;
      for (int64_t i = 0; i < kTileKeys; i += LaneCount()) {
        const auto before = group == 0 ? hn::Zero(d) : hn::Load(d, scores + i);
        hn::Store(AddPart(hn::Load(d, arrays.parts + query * kTileKeys + i),
                          hn::Load(d, numbers + i), hn::Load(d, numbers + kTileKeys + i), q_sum,
                          before),
                  d, scores + i);
      }
    }
  }
}

// Values. ----

// For queries [query, query + count), which see the same keys: weight * scale of a group's keys, as
// bf16 in arrays.weights for dots, else in arrays.parts; and sums of weight * minimum in
// arrays.bases.
void WeighGroup(const AttentionTask& task, const TaskArrays& arrays, const KeyRange& keys,
                int64_t group, int64_t query, int64_t count) {
  const F32Tag d;
  const float* numbers = arrays.numbers + group * 2 * kTileKeys;
  if (task.uses_dots) {
    WeighPackedDots({.weights = arrays.scores + query * kTileKeys,
                     .numbers = numbers,
                     .first = keys.first,
                     .last = keys.last,
                     .rows = count,
                     .scaled = arrays.weights + query * 32,
                     .bases = arrays.bases + query});
    return;
  }
  const bool is_whole = keys == KeyRange{0, kTileKeys};
  const auto begin = hn::Set(d, static_cast<float>(keys.first));
  const auto end = hn::Set(d, static_cast<float>(keys.last));
  for (; count > 0; ++query, --count) {
    const float* weights = arrays.scores + query * kTileKeys;
    float* scaled = arrays.parts + query * kTileKeys;
    auto base = hn::Zero(d);
    for (int64_t i = 0; i < kTileKeys; i += LaneCount()) {
      const auto weight = hn::Load(d, weights + i);
      auto product = hn::Mul(weight, hn::Load(d, numbers + i));
      auto sum = hn::MulAdd(weight, hn::Load(d, numbers + kTileKeys + i), base);
      if (!is_whole) {
        const auto key = hn::Iota(d, static_cast<float>(i));
        const auto is_seen = hn::And(hn::Ge(key, begin), hn::Lt(key, end));
        product = hn::IfThenElseZero(is_seen, product);
        sum = hn::IfThenElse(is_seen, sum, base);
      }
      hn::Store(product, d, scaled + i);
      base = sum;
    }
    arrays.bases[query] = hn::GetLane(hn::SumOfLanes(d, base));
  }
}

struct PackedValues {
  const std::byte* codes[kTilePages] = {};  // a page without keys that are seen: null
  const std::byte* next[kTilePages] = {};   // fetched meanwhile, or null
  int64_t width = 0;
  KeyRange keys;
};

// out[r][column] = sum over keys ascending of weights[r][key] * codes[key][column], + base[r].
template <int kRows, int kVectors, int kBits>
HWY_INLINE void SumPackedTile(const PackedValues& values, const float* weights, const float* base,
                              int64_t column, float* out) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const int64_t row_bytes = values.width * kLaneBytes<kBits>;
  const int64_t block_bytes = kBits == 4 ? row_bytes : row_bytes * (kCodeBlock / 2);
  F32Vec sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Zero(d);
    }
  }
  for (int64_t page = 0; page < kTilePages; ++page) {
    const int64_t begin = page * kPagePositions;
    const int64_t first = std::max(values.keys.first, begin) / kCodeBlock * kCodeBlock;
    const int64_t last = std::min(values.keys.last, begin + kPagePositions);
    if (first >= last) continue;
    const int64_t skipped =
        (first - begin) / kCodeBlock * block_bytes + column * kLaneBytes<kBits>;
    const std::byte* codes = values.codes[page] + skipped;
    const std::byte* next = values.next[page] == nullptr ? nullptr : values.next[page] + skipped;
    for (int64_t key = first; key < last; key += kCodeBlock) {
      hn::Vec<U32Tag> bits[kVectors];
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
        bits[v] = StartBlock<kBits>(codes + v * lanes * kLaneBytes<kBits>);
      }
      HWY_UNROLL(4) for (int64_t pair = 0; pair < kCodeBlock / 2; ++pair) {
        const float* factors = weights + key + 2 * pair;
        CodePair both[kVectors];
        HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
          both[v] = TakePair<kBits>(codes + v * lanes * kLaneBytes<kBits>, bits[v]);
        }
        HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
          const auto even = hn::Set(d, factors[r * kTileKeys]);
          const auto odd = hn::Set(d, factors[r * kTileKeys + 1]);
          HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
            sums[r][v] = hn::MulAdd(even, both[v].even, sums[r][v]);
            sums[r][v] = hn::MulAdd(odd, both[v].odd, sums[r][v]);
          }
        }
        if (kBits == 8 || pair == 0) {
          if (next != nullptr) {
            for (int64_t i = 0; i < kVectors * lanes * kLaneBytes<kBits>; i += 64) {
              __builtin_prefetch(next + i, 0, 2);
            }
            next += row_bytes;
          }
        }
        if (kBits == 8) codes += row_bytes;
      }
      if (kBits == 4) codes += row_bytes;
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      hn::Store(hn::Add(sums[r][v], hn::Set(d, base[r])), d,
                out + r * kPanelOutputs + v * lanes);
    }
  }
}

// All columns of a group.
template <int kRows, int kBits>
void SumPackedRows(const PackedValues& values, const float* weights, const float* base,
                   int64_t first, int64_t columns, float* out) {
  const int64_t lanes = LaneCount();
  int64_t n = 0;
  for (; n + kWideVectors * lanes <= columns; n += kWideVectors * lanes) {
    SumPackedTile<kRows, kWideVectors, kBits>(values, weights, base, first + n, out + n);
  }
  for (; n < columns; n += lanes) {
    SumPackedTile<kRows, 1, kBits>(values, weights, base, first + n, out + n);
  }
}

template <int kBits>
void SumPackedPass(const PackedValues& values, const float* weights, const float* base,
                   int64_t first, int64_t columns, int64_t rows, float* out) {
  using Kernel = void (*)(const PackedValues&, const float*, const float*, int64_t, int64_t, float*);
  static constexpr Kernel kKernels[kPassRows + 1] = {
      nullptr, SumPackedRows<1, kBits>, SumPackedRows<2, kBits>, SumPackedRows<3, kBits>,
      SumPackedRows<4, kBits>};
  kKernels[rows](values, weights, base, first, columns, out);
}

// tile_out of queries [query, query + count) of a head, which see the same keys.
void SumPackedInPlace(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile,
                      int64_t head, const KeyRange& keys, int64_t query, int64_t count) {
  const bool is_4_bits = task.args->layout.code_bits() == 4;
  const int64_t most_rows = task.uses_dots ? kPackedRows : kPassRows;
  const int64_t first_page = tile.first_key / kPagePositions;
  PackedValues values = {.width = PaddedHeadWidth(*task.args), .keys = keys};
  for (int64_t page = keys.first / kPagePositions; page * kPagePositions < keys.last; ++page) {
    values.codes[page] = HeadIn(task, head, first_page + page, true).codes;
    values.next[page] = CodesAhead(task, head, first_page + page, true);
  }
  for (int64_t group = 0; group < task.args->layout.num_groups(); ++group) {
    WeighGroup(task, arrays, keys, group, query, count);
    const int64_t column = group * kKvGroup;
    for (int64_t done = 0; done < count; done += most_rows) {
      const int64_t first = query + done;
      const int64_t rows = std::min(most_rows, count - done);
      PackedValues pass = values;
      if (first != head * HeadQueries(task)) pass.next[0] = pass.next[1] = nullptr;
      float* out = arrays.tile_out + (group * NumQueries(task) + first) * kPanelOutputs;
      if (!task.uses_dots) {
        const auto sum = is_4_bits ? SumPackedPass<4> : SumPackedPass<8>;
        sum(pass, arrays.parts + first * kTileKeys, arrays.bases + first, column,
            GroupWidth(task, group), rows, out);
        continue;
      }
      const int64_t column_bytes = column * (is_4_bits ? kLaneBytes<4> : kLaneBytes<8>);
      const auto at_column = [&](const std::byte* codes) {
        return codes == nullptr ? nullptr : codes + column_bytes;
      };
      SumPackedDots({.bits = is_4_bits ? 4 : 8,
                     .codes = {at_column(pass.codes[0]), at_column(pass.codes[1])},
                     .next = {at_column(pass.next[0]), at_column(pass.next[1])},
                     .width = values.width,
                     .columns = GroupWidth(task, group),
                     .first = keys.first,
                     .last = keys.last,
                     .weights = arrays.weights + first * 32,
                     .base = arrays.bases + first,
                     .rows = rows,
                     .out = out});
    }
  }
}

// The same by values that are laid out.
void SumPackedLaidOut(const AttentionTask& task, const TaskArrays& arrays, const KeyRange& keys,
                      int64_t query, int64_t count) {
  const F32Tag d;
  const int64_t first_pair = keys.first / 2;
  for (int64_t group = 0; group < task.args->layout.num_groups(); ++group) {
    WeighGroup(task, arrays, keys, group, query, count);
    float* out = arrays.tile_out + (group * NumQueries(task) + query) * kPanelOutputs;
    if (task.uses_dots) {
      MultiplyDots({.x = arrays.weights + query * 32 + first_pair,
                    .rows = count,
                    .panel = arrays.values + (group * kTileKeys / 2 + first_pair) * kPanelOutputs,
                    .pairs = (keys.last + 1) / 2 - first_pair,
                    .sums = out});
    } else {
      Multiply(arrays.parts + query * kTileKeys + keys.first, kTileKeys, count,
               arrays.values + (group * kTileKeys + keys.first) * kPanelOutputs, kPanelOutputs,
               keys.last - keys.first, out);
    }
    for (int64_t row = 0; row < count; ++row, out += kPanelOutputs) {
      const auto base = hn::Set(d, arrays.bases[query + row]);
      for (int64_t i = 0; i < kPanelOutputs; i += LaneCount()) {
        hn::Store(hn::Add(hn::Load(d, out + i), base), d, out + i);
      }
    }
  }
}

// Laying out. ----

HWY_INLINE F32Vec PairAsDots(const CodePair& pair) {
  const U32Tag du;
  const auto even = hn::ShiftRight<16>(hn::BitCast(du, pair.even));
  return hn::BitCast(F32Tag(), hn::Or(even, hn::BitCast(du, pair.odd)));
}

// Calls store(pair, lane, codes) for the codes of `rows` blocks, which are `lanes_of_row` wide.
template <int kBits, typename Store>
HWY_INLINE void ForEachPair(const std::byte* codes, int64_t blocks, int64_t lanes_of_row,
                            const Store& store) {
  const int64_t row_bytes = lanes_of_row * kLaneBytes<kBits>;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t lane = 0; lane < lanes_of_row; lane += LaneCount()) {
      const std::byte* at = codes + lane * kLaneBytes<kBits>;
      auto bits = StartBlock<kBits>(at);
      for (int64_t pair = 0; pair < kCodeBlock / 2; ++pair) {
        store(block * (kCodeBlock / 2) + pair, lane, TakePair<kBits>(at, bits));
        if (kBits == 8) at += row_bytes;
      }
    }
    codes += kBits == 4 ? row_bytes : row_bytes * (kCodeBlock / 2);
  }
}

// Keys of a page to [W][64], with dots [W/2][64] of pairs; values to [W/64][64][64], with dots
// [W/64][32][64] of pairs, zeros behind column W.
template <int kBits>
void LayOutPage(const AttentionTask& task, const TaskArrays& arrays, int64_t page, int64_t done) {
  const F32Tag d;
  const int64_t width = PaddedHeadWidth(*task.args);
  const bool uses_dots = task.uses_dots;
  float* keys = arrays.keys + done;
  ForEachPair<kBits>(HeadIn(task, 0, page, false).codes, width / kCodeBlock, kPagePositions,
                     [&](int64_t pair, int64_t key, const CodePair& codes) HWY_ATTR {
                       if (uses_dots) {
                         hn::Store(PairAsDots(codes), d, keys + pair * kTileKeys + key);
                       } else {
                         hn::Store(codes.even, d, keys + 2 * pair * kTileKeys + key);
                         hn::Store(codes.odd, d, keys + (2 * pair + 1) * kTileKeys + key);
                       }
                     });
  const auto value_at = [&](int64_t row, int64_t column) {
    const int64_t rows = uses_dots ? kTileKeys / 2 : kTileKeys;
    return arrays.values + (column / kPanelOutputs * rows + row) * kPanelOutputs +
           column % kPanelOutputs;
  };
  ForEachPair<kBits>(HeadIn(task, 0, page, true).codes, kPagePositions / kCodeBlock, width,
                     [&](int64_t pair, int64_t column, const CodePair& codes) HWY_ATTR {
                       if (uses_dots) {
                         hn::Store(PairAsDots(codes), d, value_at(done / 2 + pair, column));
                       } else {
                         hn::Store(codes.even, d, value_at(done + 2 * pair, column));
                         hn::Store(codes.odd, d, value_at(done + 2 * pair + 1, column));
                       }
                     });
  const int64_t first_row = uses_dots ? done / 2 : done;
  const int64_t rows = uses_dots ? kPagePositions / 2 : kPagePositions;
  for (int64_t column = width; column % kPanelOutputs != 0; column += LaneCount()) {
    for (int64_t row = 0; row < rows; ++row) {
      hn::Store(hn::Zero(d), d, value_at(first_row + row, column));
    }
  }
}

void LayOutPackedTile(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  const PageRange pages = SeenPages(tile);
  const auto lay_out = task.args->layout.code_bits() == 4 ? LayOutPage<4> : LayOutPage<8>;
  for (int64_t page = pages.first; page < pages.last; ++page) {
    lay_out(task, arrays, tile.first_key / kPagePositions + page, page * kPagePositions);
  }
}

// Tasks. ----

void AttendPackedLaidOut(const AttentionTask& task, const TaskArrays& arrays) {
  LoadPackedLaidOut(task, arrays);
  const int64_t group = GroupHeads(*task.args);
  ForEachTile(task, [&](const KeyTile& tile) {
    LayOutPackedTile(task, arrays, tile);
    LoadNumbers(task, tile, 0, false, arrays.numbers);
    ScorePackedLaidOut(task, arrays, tile.first_row * group, tile.end_row * group);
    WeighTile(task, arrays, tile);
    LoadNumbers(task, tile, 0, true, arrays.numbers);
    ForEachRun(task, tile, 0, [&](const KeyRange& keys, int64_t query, int64_t count) {
      SumPackedLaidOut(task, arrays, keys, query, count);
    });
    MergeTile(task, arrays, tile);
  });
}

void AttendPackedInPlace(const AttentionTask& task, const TaskArrays& arrays) {
  LoadPackedInPlace(task, arrays);
  std::fill_n(arrays.tile_out, NumQueries(task) * NumPanels(task) * PanelWidth(task), 0.0F);
  ForEachTile(task, [&](const KeyTile& tile) {
    for (int64_t head = 0; head < task.num_heads; ++head) {
      ScorePackedInPlace(task, arrays, tile, head);
    }
    WeighTile(task, arrays, tile);
    for (int64_t head = 0; head < task.num_heads; ++head) {
      LoadNumbers(task, tile, head, true, arrays.numbers);
      ForEachRun(task, tile, head, [&](const KeyRange& keys, int64_t query, int64_t count) {
        SumPackedInPlace(task, arrays, tile, head, keys, query, count);
      });
    }
    MergeTile(task, arrays, tile);
  });
}

void AttendPacked(const AttentionTask& task, const TaskArrays& arrays) {
  if (task.in_place) {
    AttendPackedInPlace(task, arrays);
  } else {
    AttendPackedLaidOut(task, arrays);
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
