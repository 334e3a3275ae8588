// What kernels share: conversions, sums over threads, rows of a matrix.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_fp16.h>
#include <device_launch_parameters.h>

#include "kernels/tensor_view.h"

namespace nightshift::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned int kAllLanes = 0xffffffffU;

__device__ inline float* RowOf(const MatrixView& matrix, int64_t row) {
  return matrix.data + row * matrix.stride;
}

__device__ inline float BF16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// As F32ToBF16 of kernels/convert.h, on every compute capability.
__device__ inline uint16_t FloatToBF16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

__device__ inline float RoundToBF16(float value) {
  return BF16ToFloat(FloatToBF16(value));
}

__device__ inline float HalfToFloat(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}

// cap * tanh(x / cap). NaN stays NaN.
__device__ inline float SoftCapped(float x, float cap) {
  return cap * tanhf(x / cap);
}

// Sum over the lanes of a warp, in every lane. The order is fixed.
__device__ inline float WarpSum(float value) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// Sum over the kThreads threads of a block, in every thread, in a fixed order.
template <int kThreads>
__device__ inline float BlockSum(float value) {
  value = WarpSum(value);
  if constexpr (kThreads > kWarpThreads) {
    __shared__ float sums[kThreads / kWarpThreads];
    if (threadIdx.x % kWarpThreads == 0) sums[threadIdx.x / kWarpThreads] = value;
    __syncthreads();
    value = 0.0F;
    for (int warp = 0; warp < kThreads / kWarpThreads; ++warp) {
      value += sums[warp];
    }
    __syncthreads();  // before `sums` is used again
  }
  return value;
}

}  // namespace nightshift::cuda
