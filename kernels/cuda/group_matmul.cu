#include "kernels/cuda/group_matmul.h"

#include <algorithm>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/element_kernel.cuh"

namespace nightshift::cuda {
namespace {

// Inputs of one step: whole groups' parts, since groups are of 32 or 64.
constexpr int kStep = 32;
constexpr int kOutputs = static_cast<int>(kPanelOutputs);
constexpr int kThreads = 128;
// Outputs of one thread, neighbours.
constexpr int kThreadOutputs = 4;
constexpr int kOutputGroups = kOutputs / kThreadOutputs;

// A step of a panel, [k][output].
struct WeightStep {
  float values[kStep][kOutputs];
};

// Expands a step of codes: each thread pairs of k of one output.
__device__ void LoadStep(const DeviceWeight& weight, const std::byte* panel, int64_t first,
                         bool rounds, WeightStep& step) {
  const int n = static_cast<int>(threadIdx.x) % kOutputs;
  const int64_t number = first / weight.group * kOutputs + n;
  const float scale = HalfToFloat(reinterpret_cast<const uint16_t*>(panel + weight.scales)[number]);
  const float minimum =
      weight.has_minimum
          ? HalfToFloat(reinterpret_cast<const uint16_t*>(panel + weight.minimums)[number])
          : 0.0F;
  const auto value_of = [&](int code) {
    const float product = static_cast<float>(code) * scale;
    const float value = weight.has_minimum ? product + minimum : product;
    return rounds ? RoundToBF16(value) : value;
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
    step.values[2 * pair][n] = value_of(codes[0]);
    step.values[2 * pair + 1][n] = value_of(codes[1]);
  }
}

// A block multiplies kRows rows by a panel; a thread has kRows * kOutputs / kThreads sums.
template <int kRows>
__global__ void __launch_bounds__(kThreads) GroupMatMulKernel(GroupMatMulArgs args) {
  constexpr int kThreadRows = kRows * kOutputGroups / kThreads;
  __shared__ WeightStep weights;
  __shared__ float inputs[kRows][kStep];
  const DeviceWeight& weight = args.weight;
  const std::byte* panel = weight.data + blockIdx.x * weight.panel_bytes;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kRows;
  const int thread_row = static_cast<int>(threadIdx.x) / kOutputGroups * kThreadRows;
  const int output = static_cast<int>(threadIdx.x) % kOutputGroups * kThreadOutputs;
  float sums[kThreadRows][kThreadOutputs] = {};
  for (int64_t first = 0; first < weight.inputs; first += kStep) {
    __syncthreads();
    LoadStep(weight, panel, first, args.rounds, weights);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kStep; i += kThreads) {
      const int64_t row = first_row + i / kStep;
      const int64_t k = first + i % kStep;
      float value = row < args.x.rows && k < weight.inputs ? RowOf(args.x, row)[k] : 0.0F;
      inputs[i / kStep][i % kStep] = args.rounds ? RoundToBF16(value) : value;
    }
    __syncthreads();
    // Codes of the padding may be anything.
    const int count = static_cast<int>(min(weight.inputs - first, int64_t{kStep}));
    for (int k = 0; k < count; ++k) {
      const float4 four = *reinterpret_cast<const float4*>(&weights.values[k][output]);
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const float x = inputs[thread_row + i][k];
        sums[i][0] = fmaf(x, four.x, sums[i][0]);
        sums[i][1] = fmaf(x, four.y, sums[i][1]);
        sums[i][2] = fmaf(x, four.z, sums[i][2]);
        sums[i][3] = fmaf(x, four.w, sums[i][3]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int64_t row = first_row + thread_row + i;
    if (row >= args.out.rows) continue;
    for (int j = 0; j < kThreadOutputs; ++j) {
      const int64_t n = static_cast<int64_t>(blockIdx.x) * kOutputs + output + j;
      if (n >= weight.outputs) continue;
      float sum = sums[i][j];
      if (args.bias != nullptr) sum += args.bias[weight.first_output + n];
      float& target = RowOf(args.out, row)[weight.first_output + n];
      target = args.accumulate ? target + sum : sum;
    }
  }
}

constexpr int64_t kFewRows = 8;
constexpr int64_t kManyRows = 64;

}  // namespace

void LaunchGroupMatMul(Launcher& launcher, const GroupMatMulArgs& args) {
  const int64_t tile = args.x.rows <= kFewRows ? kFewRows : kManyRows;
  const dim3 blocks(NumBlocks(args.weight.outputs, kOutputs), NumBlocks(args.x.rows, tile));
  const auto kernel = tile == kFewRows ? GroupMatMulKernel<kFewRows> : GroupMatMulKernel<kManyRows>;
  launcher.Launch("GroupMatMul", blocks, kThreads, kernel, args);
}

}  // namespace nightshift::cuda
