// The KV page: keys and values of one layer for 32 consecutive positions of one sequence.
// Layout: plane K [G][32][D], then plane V [G][32][D], each plane padded to a multiple of 4 KiB.
//
// Of integer groups each head's row of D is quantised alone, as it is appended, in groups of 64
// along D; where D is no multiple of 64 the last group of a row is what is left (80: 64 and 16).
// Keys are transformed before (cpu/hadamard.h), as queries are; values are not.
// A plane is the codes of all heads, then their scales and minimums. Codes lie as attention takes
// them, W = D padded to a multiple of 16 with zeros:
//   4 bits, keys    u32 [G][W/8][32]: the codes of 8 dimensions of a position
//           values  u32 [G][32/8][W]: the codes of 8 positions in a dimension
//           of a u32, code 2p + e (e 0, 1) is bits 4p + 16e to 4p + 16e + 3
//   8 bits, keys    u8 [G][W/2][32][2]: pairs of dimensions
//           values  u8 [G][32/2][W][2]: pairs of positions
//   numbers         fp16 [G][groups][2][32]: scales of the 32 positions, then their minimums
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/tensor_view.h"

namespace nightshift {

inline constexpr int64_t kPagePositions = 32;
inline constexpr int64_t kPlaneAlignment = 4096;
// Attention merges tiles of this many keys in ascending order, from position 0.
inline constexpr int64_t kTileKeys = 64;
// Dimensions of a head that share scale and minimum.
inline constexpr int64_t kKvGroup = 64;

struct KvPageLayout {
  // kF32 in compute type f32, kBF16 in bf16; in both kU4G64 or kU8G64.
  DType dtype = DType::kF32;
  int64_t kv_heads = 0;    // G
  int64_t head_width = 0;  // D

  int64_t plane_bytes() const {
    return RoundUp(is_packed() ? numbers_offset(kv_heads, 0)
                               : kv_heads * kPagePositions * head_width * FloatBytes(dtype),
                   kPlaneAlignment);
  }
  int64_t page_bytes() const { return 2 * plane_bytes(); }
  // Of float types: element offset of (head, position in page) inside a plane.
  int64_t element(int64_t head, int64_t slot) const {
    return (head * kPagePositions + slot) * head_width;
  }

  // Of integer groups.
  bool is_packed() const { return !IsFloat(dtype); }
  int64_t code_bits() const { return dtype == DType::kU8G64 ? 8 : 4; }
  int64_t padded_width() const { return RoundUp(head_width, 16); }
  int64_t num_groups() const { return (head_width + kKvGroup - 1) / kKvGroup; }
  // Byte offsets inside a plane: of a head's codes, of a group's numbers.
  int64_t codes_offset(int64_t head) const {
    return head * kPagePositions * padded_width() * code_bits() / 8;
  }
  int64_t numbers_offset(int64_t head, int64_t group) const {
    return codes_offset(kv_heads) + (head * num_groups() + group) * kNumbersBytes;
  }
  static constexpr int64_t kNumbersBytes = 2 * kPagePositions * 2;
};

// Whether pages of this type can be kept in compute type `compute`: its own, or integer groups.
bool IsKvType(DType dtype, ComputeType compute);

// "int4", "int8", or the float type's name.
const char* KvTypeName(DType dtype);

}  // namespace nightshift
