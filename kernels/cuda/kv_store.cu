#include "kernels/cuda/kv_store.h"

#include <bit>
#include <cmath>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/page_codes.cuh"

namespace nightshift::cuda {
namespace {

constexpr int kStoreThreads = 128;
constexpr int kWidestHead = static_cast<int>(kMaxHeadWidth);
// Numbers of fp16 that every NaN of a group becomes.
constexpr uint16_t kHalfNaN = 0x7e00;

// A block stores the rows of a run for one kv head.
__global__ void __launch_bounds__(kStoreThreads) StoreFloatsKernel(StoreArgs args) {
  const DevicePageLayout& layout = args.layout;
  const PageRun& run = args.runs[blockIdx.x];
  const int64_t head = blockIdx.y;
  const int64_t width = layout.head_width;
  const int64_t first = (head * kPagePositions + run.first_slot) * width;
  for (int64_t i = threadIdx.x; i < run.num_rows * width; i += kStoreThreads) {
    const int64_t row = run.first_row + i / width;
    const int64_t column = head * width + i % width;
    const float key = RowOf(args.k, row)[column];
    const float value = RowOf(args.v, row)[column];
    if (layout.dtype == DType::kF32) {
      reinterpret_cast<float*>(run.page)[first + i] = key;
      reinterpret_cast<float*>(run.page + layout.plane_bytes)[first + i] = value;
    } else {
      reinterpret_cast<uint16_t*>(run.page)[first + i] = FloatToBF16(key);
      reinterpret_cast<uint16_t*>(run.page + layout.plane_bytes)[first + i] = FloatToBF16(value);
    }
  }
}

// --- Integer groups: kernels/quantise_group.h, step by step in f64.

// To f16 with one rounding, which that of a rounded f32 would not be; saturates.
__device__ uint16_t ToHalf(double value) {
  const double magnitude = fmin(fabs(value), 65504.0);
  // Neighbours of f16 are 2^-10 of their power of two apart, from 2^-14 down 2^-24. A sum with 1.5
  // times 2^52 of that has no bits left below it.
  const long long power = __double_as_longlong(fmax(magnitude, 0x1p-14)) >> 52;
  const double shift = __longlong_as_double((power + 42) << 52) * 1.5;
  const double rounded = magnitude + shift - shift;
  return __half_as_ushort(__float2half_rn(static_cast<float>(copysign(rounded, value))));
}

__device__ float WarpMin(float value) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value = fminf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// Quantises `count` values of one group by one warp, two a lane; numbers are those of slot 0.
__device__ void QuantiseGroup(const float* values, int count, double levels, uint8_t* codes,
                              uint16_t* scale, uint16_t* minimum) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  // What is missing repeats the first value, which changes no range.
  const float a = lane < count ? values[lane] : values[0];
  const float b = lane + kWarpThreads < count ? values[lane + kWarpThreads] : values[0];
  // A NaN or an infinity less itself is NaN, and stays in a sum.
  const bool is_finite = WarpSum((a - a) + (b - b)) == 0.0F;
  // +0 of zeros of both signs.
  const double low = static_cast<double>(WarpMin(fminf(a, b))) + 0.0;
  const double high = -static_cast<double>(WarpMin(fminf(-a, -b))) + 0.0;
  const double spread = high - low;
  const auto code_of = [&](float value) -> uint8_t {
    if (!is_finite || !(spread > 0.0)) return 0;
    return static_cast<uint8_t>(rint((static_cast<double>(value) - low) * levels / spread));
  };
  if (lane < count) codes[lane] = code_of(a);
  if (lane + kWarpThreads < count) codes[lane + kWarpThreads] = code_of(b);
  if (lane == 0) {
    *scale = is_finite ? ToHalf(spread / levels) : kHalfNaN;
    *minimum = is_finite ? ToHalf(low) : kHalfNaN;
  }
}

__device__ void StoreKeyCodes(const DevicePageLayout& layout, const uint8_t* codes, int slot,
                              std::byte* target) {
  const int width = static_cast<int>(layout.padded_width);
  if (layout.dtype == DType::kU4G64) {
    for (int word = static_cast<int>(threadIdx.x); word < width / 8; word += kStoreThreads) {
      uint32_t bits = 0;
      for (int i = 0; i < 8; ++i) {
        bits |= static_cast<uint32_t>(codes[8 * word + i]) << CodeShift(i);
      }
      reinterpret_cast<uint32_t*>(target)[word * kPagePositions + slot] = bits;
    }
    return;
  }
  for (int d = static_cast<int>(threadIdx.x); d < width; d += kStoreThreads) {
    reinterpret_cast<uint8_t*>(target)[(d / 2 * kPagePositions + slot) * 2 + d % 2] = codes[d];
  }
}

__device__ void StoreValueCodes(const DevicePageLayout& layout, const uint8_t* codes, int slot,
                                std::byte* target) {
  const int width = static_cast<int>(layout.padded_width);
  for (int d = static_cast<int>(threadIdx.x); d < width; d += kStoreThreads) {
    if (layout.dtype == DType::kU4G64) {
      // Of 8 positions, whose other codes stay.
      uint32_t& word = reinterpret_cast<uint32_t*>(target)[slot / 8 * width + d];
      const int shift = CodeShift(slot % 8);
      word = (word & ~(15U << shift)) | static_cast<uint32_t>(codes[d]) << shift;
    } else {
      reinterpret_cast<uint8_t*>(target)[(slot / 2 * width + d) * 2 + slot % 2] = codes[d];
    }
  }
}

// A block stores the rows of a run for one kv head, one row after the other: codes of neighbouring
// positions share words.
__global__ void __launch_bounds__(kStoreThreads) StoreGroupsKernel(StoreArgs args) {
  __shared__ float values[kWidestHead];
  __shared__ uint8_t codes[kWidestHead];
  const DevicePageLayout& layout = args.layout;
  const PageRun& run = args.runs[blockIdx.x];
  const int64_t head = blockIdx.y;
  const int width = static_cast<int>(layout.head_width);
  const double levels = layout.dtype == DType::kU4G64 ? 15.0 : 255.0;
  for (int d = static_cast<int>(threadIdx.x); d < kWidestHead; d += kStoreThreads) {
    codes[d] = 0;  // behind the head's width
  }
  for (int index = 0; index < 2 * run.num_rows; ++index) {
    const bool is_key = index % 2 == 0;
    const int row = index / 2;
    const int slot = run.first_slot + row;
    const float* source =
        RowOf(is_key ? args.k : args.v, run.first_row + row) + head * layout.head_width;
    __syncthreads();
    for (int d = static_cast<int>(threadIdx.x); d < width; d += kStoreThreads) {
      values[d] = source[d];
    }
    __syncthreads();
    if (is_key) {
      TransformRows<kStoreThreads>(values, 1, kWidestHead, width, layout.transform_block,
                                   layout.key_factor);
    }
    std::byte* plane = run.page + (is_key ? 0 : layout.plane_bytes);
    const int group = static_cast<int>(threadIdx.x) / kWarpThreads;
    if (group < layout.num_groups) {
      uint16_t* numbers = GroupNumbers(layout, plane, head, group) + slot;
      const int first = group * static_cast<int>(kKvGroup);
      QuantiseGroup(values + first, min(static_cast<int>(kKvGroup), width - first), levels,
                    codes + first, numbers, numbers + kPagePositions);
    }
    __syncthreads();
    std::byte* target = plane + head * layout.head_code_bytes;
    if (is_key) {
      StoreKeyCodes(layout, codes, slot, target);
    } else {
      StoreValueCodes(layout, codes, slot, target);
    }
  }
}

}  // namespace

DevicePageLayout DevicePageLayoutOf(const KvPageLayout& layout) {
  DevicePageLayout device = {.dtype = layout.dtype,
                             .kv_heads = layout.kv_heads,
                             .head_width = layout.head_width,
                             .plane_bytes = layout.plane_bytes()};
  if (!layout.is_packed()) return device;
  device.padded_width = layout.padded_width();
  device.head_code_bytes = layout.codes_offset(1);
  device.numbers = layout.numbers_offset(0, 0);
  device.num_groups = layout.num_groups();
  // What keys and queries are multiplied by is together 1 / block (kernels/cpu/hadamard.h).
  const int log = std::countr_zero(static_cast<uint64_t>(layout.head_width));
  device.transform_block = 1 << log;
  device.key_factor = std::ldexp(1.0F, -(log / 2));
  device.query_factor = std::ldexp(1.0F, log / 2 - log);
  return device;
}

void LaunchStoreKv(Launcher& launcher, const StoreArgs& args) {
  const dim3 blocks(static_cast<unsigned int>(args.num_runs),
                    static_cast<unsigned int>(args.layout.kv_heads));
  if (IsFloat(args.layout.dtype)) {
    launcher.Launch("StoreKv", blocks, kStoreThreads, StoreFloatsKernel, args);
  } else {
    launcher.Launch("StoreKv", blocks, kStoreThreads, StoreGroupsKernel, args);
  }
}

}  // namespace nightshift::cuda
