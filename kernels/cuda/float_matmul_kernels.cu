#include "kernels/cuda/float_matmul_kernels.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/element_kernel.cuh"

namespace nightshift::cuda {
namespace {

constexpr int kUnpackThreads = 256;
// Inputs of a panel that a block turns: 64 outputs x 64 inputs of 4 bytes are 16 KiB.
constexpr int kUnpackInputs = 64;

template <typename Element>
struct PanelArgs {
  const Element* source;
  int64_t inputs;
  Element* target;
};

// Reads and writes whole lines; one column of padding keeps the banks apart.
template <typename Element>
__global__ void __launch_bounds__(kUnpackThreads) UnpackKernel(PanelArgs<Element> args) {
  __shared__ Element tile[kPanelOutputs][kUnpackInputs + 1];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kUnpackInputs;
  const int64_t panel = static_cast<int64_t>(blockIdx.y) * kPanelOutputs * args.inputs;
  const int count = static_cast<int>(min(static_cast<int64_t>(kUnpackInputs), args.inputs - first));
  constexpr int kOutputs = static_cast<int>(kPanelOutputs);
  for (int i = static_cast<int>(threadIdx.x); i < count * kOutputs; i += kUnpackThreads) {
    const int pair = i / (2 * kOutputs);
    const int rest = i % (2 * kOutputs);
    tile[rest / 2][2 * pair + rest % 2] = args.source[panel + first * kOutputs + i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count * kOutputs; i += kUnpackThreads) {
    const int output = i / count;
    const int input = i % count;
    args.target[panel + output * args.inputs + first + input] = tile[output][input];
  }
}

template <typename Element>
void LaunchUnpack(Launcher& launcher, const std::byte* source, int64_t panels, int64_t inputs,
                  std::byte* target) {
  const PanelArgs<Element> args = {reinterpret_cast<const Element*>(source), inputs,
                                   reinterpret_cast<Element*>(target)};
  launcher.Launch("UnpackShard",
                  dim3(NumBlocks(inputs, kUnpackInputs), static_cast<unsigned int>(panels)),
                  kUnpackThreads, UnpackKernel<Element>, args);
}

struct PackRows {
  PackRowsArgs args;

  __device__ void operator()(int64_t row, int64_t column) const {
    const bool is_there = row < args.x.rows && column < args.x.columns;
    const float value = is_there ? RowOf(args.x, row)[column] : 0.0F;
    const int64_t index = row * args.padded_inputs + column;
    if (args.target_type == DType::kBF16) {
      reinterpret_cast<uint16_t*>(args.target)[index] = FloatToBF16(value);
    } else {
      reinterpret_cast<float*>(args.target)[index] = args.rounds ? RoundToBF16(value) : value;
    }
  }
};

struct Widen {
  const uint16_t* source;
  bool is_bf16;
  int64_t columns;
  float* target;

  __device__ void operator()(int64_t row, int64_t column) const {
    const int64_t index = row * columns + column;
    target[index] = is_bf16 ? BF16ToFloat(source[index]) : HalfToFloat(source[index]);
  }
};

struct StoreProduct {
  const float* product;
  int64_t stride;
  const float* bias;
  bool accumulate;
  MatrixView out;

  __device__ void operator()(int64_t row, int64_t column) const {
    float value = product[row * stride + column];
    if (bias != nullptr) value += bias[column];
    float& target = RowOf(out, row)[column];
    target = accumulate ? target + value : value;
  }
};

}  // namespace

void LaunchUnpackPanels(Launcher& launcher, const std::byte* source, int64_t element_bytes,
                        int64_t panels, int64_t inputs, std::byte* target) {
  if (element_bytes == 4) {
    LaunchUnpack<uint32_t>(launcher, source, panels, inputs, target);
  } else {
    LaunchUnpack<uint16_t>(launcher, source, panels, inputs, target);
  }
}

void LaunchPackRows(Launcher& launcher, const PackRowsArgs& args) {
  LaunchElements(launcher, "PackRows", args.padded_rows, args.padded_inputs, PackRows{args});
}

void LaunchWiden(Launcher& launcher, const std::byte* source, DType type, int64_t rows,
                 int64_t columns, float* target) {
  LaunchElements(launcher, "Widen", rows, columns,
                 Widen{reinterpret_cast<const uint16_t*>(source), type == DType::kBF16, columns,
                       target});
}

void LaunchStoreProduct(Launcher& launcher, const float* product, int64_t stride, const float* bias,
                        bool accumulate, MatrixView out) {
  LaunchElements(launcher, "StoreProduct", out.rows, out.columns,
                 StoreProduct{product, stride, bias, accumulate, out});
}

}  // namespace nightshift::cuda
