// Pages of integer groups as kernels see them: where codes and numbers lie, and the transform of
// keys and queries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kv_store.h"

namespace nightshift::cuda {

// Where code `index` of a block of 8 lies in its word.
__device__ inline int CodeShift(int index) {
  return index / 2 * 4 + index % 2 * 16;
}

// fp16 scales of the 32 positions, then their minimums.
__device__ inline uint16_t* GroupNumbers(const DevicePageLayout& layout, std::byte* plane,
                                         int64_t head, int64_t group) {
  return reinterpret_cast<uint16_t*>(
      plane + layout.numbers + (head * layout.num_groups + group) * KvPageLayout::kNumbersBytes);
}

// The Walsh-Hadamard transform in place of `count` rows of `width`, `stride` apart, in blocks,
// times `factor`: butterflies (a + b, a - b) at distance 1, then 2 and so on. For all kThreads
// threads of a block, with barriers before and behind.
template <int kThreads>
__device__ void TransformRows(float* rows, int count, int stride, int width, int block,
                              float factor) {
  const int pairs = width / 2;
  for (int distance = 1; distance < block; distance *= 2) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * pairs; i += kThreads) {
      const int pair = i % pairs;
      float* first = rows + i / pairs * stride + pair / distance * (2 * distance) + pair % distance;
      const float a = first[0];
      const float b = first[distance];
      first[0] = a + b;
      first[distance] = a - b;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count * width; i += kThreads) {
    rows[i / width * stride + i % width] *= factor;
  }
  __syncthreads();
}

}  // namespace nightshift::cuda
