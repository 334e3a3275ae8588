// One kernel for all that goes element by element: a thread calls a body for an element of a row,
// for every so many-th row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace nightshift::cuda {

inline constexpr int kElementThreads = 256;
// Blocks along the rows at most: enough for every device.
inline constexpr int64_t kMaxRowBlocks = 16384;

inline unsigned int NumBlocks(int64_t count, int64_t per_block) {
  return static_cast<unsigned int>((count + per_block - 1) / per_block);
}

template <typename Body>
__global__ void __launch_bounds__(kElementThreads)
    ElementKernel(int64_t rows, int64_t columns, Body body) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  if (column >= columns) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    body(row, column);
  }
}

// Calls body(row, column) on the device for each row and column.
template <typename Body>
void LaunchElements(Launcher& launcher, const char* name, int64_t rows, int64_t columns,
                    const Body& body) {
  const dim3 blocks(NumBlocks(columns, kElementThreads),
                    static_cast<unsigned int>(std::min(rows, kMaxRowBlocks)));
  launcher.Launch(name, blocks, kElementThreads, ElementKernel<Body>, rows, columns, body);
}

}  // namespace nightshift::cuda
