// Stand-in for NVIDIA's device_launch_parameters.h: the language of kernels as far as kernels/cuda
// speaks it, for the host's compiler. Names and meaning are those of CUDA C++.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>
#include <utility>

#include "tests/support/cuda_emulator/cuda_runtime.h"
#include "tests/support/cuda_emulator/grid.h"
#include "tests/support/cuda_emulator/stream_queue.h"

#define CUDA_EMULATOR 1
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __restrict__ __restrict
// The blocks of a launch follow each other on one thread of the host.
#define __shared__ static thread_local

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};

using nightshift::cuda_emulator::Place;

inline void __syncthreads(const Place& place = Place::current()) {
  nightshift::cuda_emulator::SyncThreads(place);
}

// Of whole warps only.
template <typename T>
T __shfl_xor_sync(unsigned int /*mask*/, T value, int lane_mask,
                  const Place& place = Place::current()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = nightshift::cuda_emulator::Exchange(bits, (static_cast<int>(threadIdx.x) & 31) ^ lane_mask,
                                             place);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Threads of the host take turns: nothing is in between.
template <typename T>
T atomicAdd(T* target, T value) {
  const T old = *target;
  *target = old + value;
  return old;
}

inline float __uint_as_float(unsigned int bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned int __float_as_uint(float value) {
  return std::bit_cast<unsigned int>(value);
}

inline long long __double_as_longlong(double value) {
  return std::bit_cast<long long>(value);
}
inline double __longlong_as_double(long long bits) {
  return std::bit_cast<double>(bits);
}

using std::max;
using std::min;

namespace nightshift::cuda_emulator {

inline cudaError_t LaunchGrid(cudaStream_t stream, const char* name, dim3 blocks, dim3 threads,
                              std::vector<Access> accesses, std::function<void()> thread) {
  return EnqueueKernel(stream, name, std::move(accesses),
                       [name, blocks, threads, thread = std::move(thread)] {
                         RunGrid(name, blocks, threads, thread);
                       });
}

}  // namespace nightshift::cuda_emulator
