#include "kernels/cuda/group_matmul.h"

#include <cuda_bf16.h>
#include <mma.h>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/element_kernel.cuh"

namespace nightshift::cuda {
namespace {

// Inputs of one step: whole groups' parts, since groups are of 32 or 64.
constexpr int kStep = 32;
constexpr int kOutputs = static_cast<int>(kPanelOutputs);
constexpr int kThreads = 128;
// On one multiprocessor; more would leave too few registers for the sums.
[[maybe_unused]] constexpr int kBlocksAtOnce = 4;
// Outputs of one thread, neighbours.
constexpr int kThreadOutputs = 4;
constexpr int kOutputGroups = kOutputs / kThreadOutputs;

// Expands a step of codes: each thread pairs of k of one output. Calls store(k, output, value).
template <typename Store>
__device__ void ExpandStep(const DeviceWeight& weight, const std::byte* panel, int64_t first,
                           const Store& store) {
  const int n = static_cast<int>(threadIdx.x) % kOutputs;
  const int64_t number = first / weight.group * kOutputs + n;
  const float scale =
      HalfToFloat(reinterpret_cast<const uint16_t*>(panel + weight.scales)[number]);
  const float minimum =
      weight.has_minimum
          ? HalfToFloat(reinterpret_cast<const uint16_t*>(panel + weight.minimums)[number])
          : 0.0F;
  const auto value_of = [&](int code) {
    const float product = static_cast<float>(code) * scale;
    return weight.has_minimum ? product + minimum : product;
  };
  for (int pair = static_cast<int>(threadIdx.x) / kOutputs; pair < kStep / 2;
       pair += kThreads / kOutputs) {
    const int64_t index = (first / 2 + pair) * kOutputs + n;
    int codes[2];
    if (weight.bits == 4) {
      const int both = reinterpret_cast<const uint8_t*>(panel)[index];
      codes[0] = (both & 15) - weight.zero;
      codes[1] = (both >> 4) - weight.zero;
    } else {
      const int both = reinterpret_cast<const uint16_t*>(panel)[index];
      codes[0] = weight.has_minimum ? both & 255 : static_cast<int8_t>(both & 255);
      codes[1] = weight.has_minimum ? both >> 8 : static_cast<int8_t>(both >> 8);
    }
    store(2 * pair, n, value_of(codes[0]));
    store(2 * pair + 1, n, value_of(codes[1]));
  }
}

// Calls store(row, k, x) for a step of kRows rows of inputs; what is not there is 0.
template <int kRows, typename Store>
__device__ void LoadInputs(const MatrixView& x, int64_t first_row, int64_t first,
                           const Store& store) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kStep; i += kThreads) {
    const int64_t row = first_row + i / kStep;
    const int64_t k = first + i % kStep;
    store(i / kStep, i % kStep, row < x.rows && k < x.columns ? RowOf(x, row)[k] : 0.0F);
  }
}

__device__ void StoreSum(const GroupMatMulArgs& args, int64_t row, int output, float sum) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kOutputs + output;
  if (row >= args.out.rows || n >= args.weight.outputs) return;
  const int64_t column = args.weight.first_output + n;
  if (args.bias != nullptr) sum += args.bias[column];
  float& target = RowOf(args.out, row)[column];
  target = args.accumulate ? target + sum : sum;
}

// --- By multiply-adds in f32: of each output k ascending.

// A block multiplies kRows rows by a panel; a thread has kRows * kOutputs / kThreads sums.
template <int kRows>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) GroupMatMulKernel(GroupMatMulArgs args) {
  constexpr int kThreadRows = kRows * kOutputGroups / kThreads;
  struct alignas(16) Shared {
    float weights[kStep][kOutputs];
    float inputs[kRows][kStep];
  };
  __shared__ Shared shared;
  const DeviceWeight& weight = args.weight;
  const std::byte* panel = weight.data + blockIdx.x * weight.panel_bytes;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int thread_row = static_cast<int>(threadIdx.x) / kOutputGroups * kThreadRows;
  const int output = static_cast<int>(threadIdx.x) % kOutputGroups * kThreadOutputs;
  float sums[kThreadRows][kThreadOutputs] = {};
  for (int64_t first = 0; first < weight.inputs; first += kStep) {
    __syncthreads();
    ExpandStep(weight, panel, first, [&](int k, int n, float value) {
      shared.weights[k][n] = args.rounds ? RoundToBF16(value) : value;
    });
    LoadInputs<kRows>(args.x, first_row, first, [&](int row, int k, float value) {
      shared.inputs[row][k] = args.rounds ? RoundToBF16(value) : value;
    });
    __syncthreads();
    // Codes of the padding may be anything.
    const int count = static_cast<int>(min(weight.inputs - first, int64_t{kStep}));
    for (int k = 0; k < count; ++k) {
      const float4 four = *reinterpret_cast<const float4*>(&shared.weights[k][output]);
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float x = shared.inputs[thread_row + i][k];
        sums[i][0] = fmaf(x, four.x, sums[i][0]);
        sums[i][1] = fmaf(x, four.y, sums[i][1]);
        sums[i][2] = fmaf(x, four.z, sums[i][2]);
        sums[i][3] = fmaf(x, four.w, sums[i][3]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    for (int j = 0; j < kThreadOutputs; ++j) {
      StoreSum(args, first_row + thread_row + i, output + j, sums[i][j]);
    }
  }
}

// --- By tensor cores in bf16: of each output 16 k at a time, ascending, sums in f32.

// A block multiplies kRows rows by a panel; a warp has the sums of 16 outputs.
template <int kRows>
__global__ void __launch_bounds__(kThreads) GroupTensorKernel(GroupMatMulArgs args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  namespace wmma = nvcuda::wmma;
  constexpr int kTile = 16;
  // Rows in shared memory are 16 bytes more apart, so that neighbours lie in other banks.
  constexpr int kWeightStride = kOutputs + 8;
  constexpr int kInputStride = kStep + 8;
  struct alignas(32) Shared {
    uint16_t weights[kStep * kWeightStride];  // [k][output]
    uint16_t inputs[kRows * kInputStride];    // [row][k]
    float sums[kTile * kOutputs];
  };
  __shared__ Shared shared;
  const DeviceWeight& weight = args.weight;
  const std::byte* panel = weight.data + blockIdx.x * weight.panel_bytes;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int first_output = static_cast<int>(threadIdx.x) / kWarpThreads * kTile;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> tiles[kRows / kTile];
#pragma unroll
  for (int i = 0; i < kRows / kTile; ++i) {
    wmma::fill_fragment(tiles[i], 0.0F);
  }
  for (int64_t first = 0; first < weight.inputs; first += kStep) {
    __syncthreads();
    ExpandStep(weight, panel, first, [&](int k, int n, float value) {
      shared.weights[k * kWeightStride + n] = FloatToBF16(value);
    });
    LoadInputs<kRows>(args.x, first_row, first, [&](int row, int k, float value) {
      shared.inputs[row * kInputStride + k] = FloatToBF16(value);
    });
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStep; k += kTile) {
      wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, __nv_bfloat16, wmma::row_major> w;
      wmma::load_matrix_sync(
          w,
          reinterpret_cast<const __nv_bfloat16*>(shared.weights + k * kWeightStride + first_output),
          kWeightStride);
#pragma unroll
      for (int i = 0; i < kRows / kTile; ++i) {
        wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, __nv_bfloat16, wmma::row_major> x;
        wmma::load_matrix_sync(
            x, reinterpret_cast<const __nv_bfloat16*>(shared.inputs + i * kTile * kInputStride + k),
            kInputStride);
        wmma::mma_sync(tiles[i], x, w, tiles[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRows / kTile; ++i) {
    __syncthreads();
    wmma::store_matrix_sync(shared.sums + first_output, tiles[i], kOutputs, wmma::mem_row_major);
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < kTile * kOutputs; j += kThreads) {
      StoreSum(args, first_row + i * kTile + j / kOutputs, j % kOutputs, shared.sums[j]);
    }
  }
#endif
}

template <int kRows>
void Launch(Launcher& launcher, const GroupMatMulArgs& args, void (*kernel)(GroupMatMulArgs)) {
  const dim3 blocks(NumBlocks(args.weight.outputs, kOutputs), NumBlocks(args.x.rows, kRows));
  launcher.Launch("GroupMatMul", blocks, kThreads, kernel, args);
}

}  // namespace

void LaunchGroupMatMul(Launcher& launcher, const GroupMatMulArgs& args) {
  if (args.rounds && args.has_tensor_cores) {
    if (args.x.rows <= 16) return Launch<16>(launcher, args, GroupTensorKernel<16>);
    return Launch<64>(launcher, args, GroupTensorKernel<64>);
  }
  if (args.x.rows <= 8) return Launch<8>(launcher, args, GroupMatMulKernel<8>);
  Launch<64>(launcher, args, GroupMatMulKernel<64>);
}

}  // namespace nightshift::cuda
