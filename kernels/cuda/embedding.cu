#include "kernels/cuda/embedding.h"

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/element_kernel.cuh"

namespace nightshift::cuda {
namespace {

__device__ float HalfAt(const std::byte* bytes, int64_t index) {
  return HalfToFloat(reinterpret_cast<const uint16_t*>(bytes)[index]);
}

__device__ float FloatAt(const DeviceWeight& weight, int64_t element) {
  if (weight.dtype == DType::kF32) return reinterpret_cast<const float*>(weight.data)[element];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(weight.data)[element];
  return weight.dtype == DType::kBF16 ? BF16ToFloat(bits) : HalfToFloat(bits);
}

__device__ float GroupValueAt(const DeviceWeight& weight, int64_t output, int64_t k) {
  const std::byte* panel = weight.data + output / kPanelOutputs * weight.panel_bytes;
  const int64_t n = output % kPanelOutputs;
  const int64_t element = k / 2 * (2 * kPanelOutputs) + n * 2 + k % 2;
  int code = 0;
  if (weight.bits == 4) {
    const int pair = reinterpret_cast<const uint8_t*>(panel)[element / 2];
    code = (pair >> (k % 2 * 4) & 15) - weight.zero;
  } else if (weight.has_minimum) {
    code = reinterpret_cast<const uint8_t*>(panel)[element];
  } else {
    code = reinterpret_cast<const int8_t*>(panel)[element];
  }
  const int64_t number = k / weight.group * kPanelOutputs + n;
  const float product = static_cast<float>(code) * HalfAt(panel + weight.scales, number);
  return weight.has_minimum ? product + HalfAt(panel + weight.minimums, number) : product;
}

struct Gather {
  GatherArgs args;

  __device__ void operator()(int64_t row, int64_t k) const {
    const DeviceWeight& weight = args.weight;
    const int64_t output = args.ids[row] - weight.first_output;
    if (output < 0 || output >= weight.outputs) return;
    float value = 0.0F;
    if (weight.bits == 0) {
      value = FloatAt(weight, output * weight.padded_inputs + k);
    } else {
      value = GroupValueAt(weight, output, k);
      if (args.rounds) value = RoundToBF16(value);
    }
    float& target = RowOf(args.out, row)[k];
    target = args.accumulate ? target + value : value;
  }
};

}  // namespace

void LaunchGather(Launcher& launcher, const GatherArgs& args) {
  LaunchElements(launcher, "EmbeddingGather", args.out.rows, args.weight.inputs, Gather{args});
}

}  // namespace nightshift::cuda
