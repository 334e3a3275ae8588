// The KV page: keys and values of one layer for 32 consecutive positions of one sequence.
// Layout: plane K [G][32][D], then plane V [G][32][D], each plane padded to a multiple of 4 KiB.
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

struct KvPageLayout {
  // kF32 in compute type f32, kBF16 in bf16. Groups, with their scales behind them, are for plans:
  // no op reads them.
  DType dtype = DType::kF32;
  int64_t kv_heads = 0;       // G
  int64_t head_width = 0;     // D

  int64_t plane_bytes() const {
    const int64_t elements = kv_heads * kPagePositions * head_width;  // whole groups
    return RoundUp(static_cast<int64_t>(static_cast<double>(elements) * StoredBits(dtype)) / 8,
                   kPlaneAlignment);
  }
  int64_t page_bytes() const { return 2 * plane_bytes(); }
  // Element offset of (head, position in page) inside a plane.
  int64_t element(int64_t head, int64_t slot) const {
    return (head * kPagePositions + slot) * head_width;
  }
};

}  // namespace nightshift
