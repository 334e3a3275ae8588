// Attention of few queries by VDPBF16PS, over keys and values as they lie in a page. Only where
// HasBF16Dots() (bf16_dots.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace nightshift::cpu {

// Keys of one call of a KeyDots kernel.
inline constexpr int64_t kDotKeys = 16;

// scores[query][key] = sum over pairs ascending of keys[key][pair] . q[pair][query].
struct KeyDotArgs {
  const std::byte* keys = nullptr;  // [16][pairs][2]
  int64_t pairs = 0;                // a multiple of 8
  const float* q = nullptr;         // [pairs][queries] pairs of bf16
  int64_t queries = 0;              // 1 to 8
  // Fetched meanwhile: as many bytes as the keys have, and half as many (or none).
  const std::byte* next_keys = nullptr;
  const std::byte* next_values = nullptr;
  float* scores = nullptr;  // [queries][64], 64-byte aligned; 16 of each row are written
};

void ScoreKeyDots(const KeyDotArgs& args);

// out[row][column] = sum over pairs of keys ascending of weights[row][pair] . values[pair][column],
// of keys [first, last) of a tile of two pages. A pair that is half inside is taken without its
// other half, which may be anything.
struct ValueDotArgs {
  const std::byte* pages[2] = {};  // [32][width] at the first column; a page without keys: null
  const std::byte* next[2] = {};   // 2 KiB to fetch during each page, or null
  int64_t width = 0;               // elements of a row
  int64_t columns = 0;             // 1 to 64
  int64_t first = 0;
  int64_t last = 0;
  const float* weights = nullptr;  // [rows][32] pairs of bf16
  int64_t rows = 0;                // 1 to 4
  float* out = nullptr;            // [rows][64], 64-byte aligned; zeros behind `columns`
};

void SumValueDots(const ValueDotArgs& args);

}  // namespace nightshift::cpu
