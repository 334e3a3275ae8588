// Attention of few queries by VDPBF16PS, over the codes of packed keys and values as they lie in a
// page (kernels/kv_page.h). Codes are whole numbers below 256, which bf16 holds exactly. Only where
// HasBF16Dots() (bf16_dots.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace nightshift::cpu {

// Rows of queries, or of weights, of one call.
inline constexpr int64_t kPackedRows = 8;

// For each group of dimensions, in ascending order:
//   part = sum over pairs of dimensions ascending of codes[key][pair] . q[pair][query]
//   scores[query][key] (from 0) += scale[key] * part, then += minimum[key] * q_sums[query]
struct PackedKeyDots {
  int bits = 4;
  // Of a head in one or two pages that follow each other.
  int64_t num_pages = 1;
  const std::byte* codes[2] = {};
  const std::byte* next[2] = {};   // as many bytes that are fetched meanwhile, or null
  int64_t width = 0;               // of the codes: a multiple of 16
  const float* numbers = nullptr;  // [groups][2][64] scales and minimums at the first page's keys
  const float* q = nullptr;        // [width / 2][queries] pairs of bf16
  const float* q_sums = nullptr;   // [groups][queries], groups `sums_stride` apart
  int64_t sums_stride = 0;
  int64_t queries = 0;      // 1 to kPackedRows
  float* scores = nullptr;  // [queries][64], 64-byte aligned; 32 a page of each row are written
};

void ScorePackedDots(const PackedKeyDots& args);

// For rows of weights [rows][64]: weights * scales of a group's keys as bf16, 0 outside of
// [first, last), and bases[row] = the sum of weight * minimum.
struct PackedWeightDots {
  const float* weights = nullptr;  // 64-byte aligned
  const float* numbers = nullptr;  // [2][64] scales and minimums
  int64_t first = 0;
  int64_t last = 0;
  int64_t rows = 0;
  float* scaled = nullptr;  // [rows][32] pairs of bf16
  float* bases = nullptr;   // [rows]
};

void WeighPackedDots(const PackedWeightDots& args);

// out[row][column] = sum over pairs of keys ascending of weights[row][pair] . codes[pair][column],
// then + base[row], of all blocks of 8 keys that have one of [first, last). What a key outside of
// it weighs is 0.
struct PackedValueDots {
  int bits = 4;
  const std::byte* codes[2] = {};  // of two pages, at the first column; a page without keys: null
  const std::byte* next[2] = {};   // fetched meanwhile: as much, or null
  int64_t width = 0;               // columns of the codes
  int64_t columns = 0;             // 16 to 64, a multiple of 16
  int64_t first = 0;
  int64_t last = 0;
  const float* weights = nullptr;  // [rows][32] pairs of bf16
  const float* base = nullptr;     // [rows]
  int64_t rows = 0;                // 1 to kPackedRows
  float* out = nullptr;            // [rows][64], 64-byte aligned
};

void SumPackedDots(const PackedValueDots& args);

}  // namespace nightshift::cpu
