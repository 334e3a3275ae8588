// Stand-in for NVIDIA's mma.h: products of 16 x 16 tiles of bf16 by a warp. Lane 0 has the tiles
// and does the work; sums are in f32, k ascending.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/convert.h"
#include "tests/support/cuda_emulator/cuda_bf16.h"
#include "tests/support/cuda_emulator/grid.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
enum layout_t { mem_row_major };

template <typename Use, int kM, int kN, int kK, typename Element, typename Layout = void>
struct fragment {
  static_assert(kM == 16 && kN == 16 && kK == 16);
  float values[16][16];
};

inline bool IsFirstLane() {
  return threadIdx.x % 32 == 0;
}

template <typename Use>
void load_matrix_sync(fragment<Use, 16, 16, 16, __nv_bfloat16, row_major>& tile,
                      const __nv_bfloat16* source, unsigned int stride) {
  if (!IsFirstLane()) return;
  for (unsigned int i = 0; i < 256; ++i) {
    tile.values[i / 16][i % 16] = nightshift::BF16ToF32(source[i / 16 * stride + i % 16].bits);
  }
}

inline void fill_fragment(fragment<accumulator, 16, 16, 16, float>& tile, float value) {
  for (auto& row : tile.values) {
    for (float& element : row) {
      element = value;
    }
  }
}

inline void mma_sync(fragment<accumulator, 16, 16, 16, float>& out,
                     const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major>& a,
                     const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major>& b,
                     const fragment<accumulator, 16, 16, 16, float>& start) {
  if (!IsFirstLane()) return;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      float sum = start.values[row][column];
      for (int k = 0; k < 16; ++k) {
        sum = std::fma(a.values[row][k], b.values[k][column], sum);
      }
      out.values[row][column] = sum;
    }
  }
}

inline void store_matrix_sync(float* target, const fragment<accumulator, 16, 16, 16, float>& tile,
                              unsigned int stride, layout_t /*layout*/) {
  if (!IsFirstLane()) return;
  for (unsigned int i = 0; i < 256; ++i) {
    target[i / 16 * stride + i % 16] = tile.values[i / 16][i % 16];
  }
}

}  // namespace nvcuda::wmma
