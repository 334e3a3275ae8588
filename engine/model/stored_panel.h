// How one panel (64 outputs of a matmul weight) lies in a pack, for each type: sizes, packing from
// GGUF's blocks, expansion to f32. The byte layout is pack_format.md, section "Panels".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/dtype.h"

namespace nightshift {

// A quantised type: value = scale * (code - zero) + minimum.
struct GroupFormat {
  int bits = 8;        // 4: two codes a byte, the even k in the low half
  int64_t group = 32;  // consecutive k that share scale and minimum
  bool has_minimum = false;
  int zero = 0;  // 8 for 4-bit symmetric types; 8-bit symmetric codes are signed bytes
};

// Nothing for float types.
std::optional<GroupFormat> GroupFormatOf(DType dtype);

// The type with this number in a pack, or nothing.
std::optional<DType> StoredDType(int64_t number);

// Bytes of one panel of `inputs` (not padded) inputs: a multiple of 64.
int64_t StoredPanelBytes(DType dtype, int64_t inputs);

// Bytes of one row of `inputs` (a multiple of 32) elements in GGUF's blocks of 32: Q8_0, Q4_0,
// Q4_1 for kI8G32, kI4G32, kU4G32; nothing for other types.
std::optional<int64_t> BlockRowBytes(DType dtype, int64_t inputs);

// Packs `rows` (1 to 64) rows of GGUF blocks, one after another in `source`, into one panel; the
// values stay as they are. Rows beyond are zeros.
void PackBlocks(DType dtype, std::span<const std::byte> source, int64_t rows, int64_t inputs,
                std::span<std::byte> panel);

// Expands a panel of a quantised type to f32 [K/2][64][2], K padded to 32, zeros beyond `inputs`.
void ExpandPanel(DType dtype, std::span<const std::byte> panel, int64_t inputs, float* target);

}  // namespace nightshift
