#include "kernels/cuda/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/element_kernel.cuh"

namespace nightshift::cuda {
namespace {

// Rows up to this long are one warp's.
constexpr int64_t kWarpColumns = 256;
constexpr int kRowThreads = 256;
constexpr int kRopeThreads = 64;

// --- Norms: a block a row.

template <int kThreads>
__device__ float SumOfSquares(const float* x, int64_t columns, float center) {
  float sum = 0.0F;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const float value = x[i] - center;
    sum = fmaf(value, value, sum);
  }
  return BlockSum<kThreads>(sum);
}

template <int kThreads, bool kIsLayerNorm>
__global__ void __launch_bounds__(kThreads) NormKernel(NormArgs args) {
  const int64_t columns = args.x.columns / args.heads;
  const int64_t row = blockIdx.x / args.heads;
  const int64_t first = blockIdx.x % args.heads * columns;
  const float* x = RowOf(args.x, row) + first;
  float* out = RowOf(args.out, row) + first;
  const float count = static_cast<float>(columns);
  float mean = 0.0F;
  if constexpr (kIsLayerNorm) {
    float sum = 0.0F;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      sum += x[i];
    }
    mean = BlockSum<kThreads>(sum) / count;
  }
  const float variance = SumOfSquares<kThreads>(x, columns, mean) / count;
  const float factor = 1.0F / sqrtf(variance + args.epsilon);
  // Each thread writes what it alone reads: x and out may be the same.
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const float scaled = (x[i] - mean) * factor;
    out[i] = kIsLayerNorm ? fmaf(scaled, args.weight[i], args.bias[i]) : scaled * args.weight[i];
  }
}

template <bool kIsLayerNorm>
void LaunchNorm(Launcher& launcher, const char* name, const NormArgs& args) {
  const dim3 blocks(static_cast<unsigned int>(args.x.rows * args.heads));
  if (args.x.columns / args.heads <= kWarpColumns) {
    launcher.Launch(name, blocks, kWarpThreads, NormKernel<kWarpThreads, kIsLayerNorm>, args);
  } else {
    launcher.Launch(name, blocks, kRowThreads, NormKernel<kRowThreads, kIsLayerNorm>, args);
  }
}

// --- Rotation: a thread a pair of a row, which takes all heads.

__global__ void RopeKernel(DeviceRopeArgs args) {
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kRopeThreads + threadIdx.x;
  if (pair >= args.pairs) return;
  for (int64_t row = blockIdx.y; row < args.x.rows; row += gridDim.y) {
    // The angle is rounded to f32 as in the models' reference; its cosine is then exact.
    const float angle = static_cast<float>(args.positions[row]) * args.inverse_frequencies[pair];
    const float cosine = static_cast<float>(cos(static_cast<double>(angle))) * args.magnitude;
    const float sine = static_cast<float>(sin(static_cast<double>(angle))) * args.magnitude;
    float* low = RowOf(args.x, row) + pair;
    for (int64_t head = 0; head < args.heads; ++head, low += args.head_width) {
      const float first = low[0];
      const float second = low[args.pairs];
      low[0] = first * cosine - second * sine;
      low[args.pairs] = second * cosine + first * sine;
    }
  }
}

// --- Element by element.

template <Activation kActivation>
__device__ float Apply(float x) {
  if constexpr (kActivation == Activation::kRelu) {
    return x > 0.0F ? x : (x != x ? x : 0.0F);
  } else if constexpr (kActivation == Activation::kSilu) {
    return x / (1.0F + expf(-x));
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    // 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
    const float twice_u = x * fmaf(x * x, 0.044715F, 1.0F) * 1.5957691216057308F;
    return x / (1.0F + expf(-twice_u));
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return x * (0.5F * erfcf(x * -0.70710678118654752F));
  } else {
    return x;
  }
}

template <Activation kActivation>
struct Activate {
  MatrixView x;
  MatrixView up;

  __device__ void operator()(int64_t row, int64_t column) const {
    float& target = RowOf(x, row)[column];
    const float value = Apply<kActivation>(target);
    target = up.data == nullptr ? value : value * RowOf(up, row)[column];
  }
};

struct Scale {
  float factor;
  MatrixView x;

  __device__ void operator()(int64_t row, int64_t column) const { RowOf(x, row)[column] *= factor; }
};

struct AddScaled {
  MatrixView x;
  float factor;
  MatrixView out;

  __device__ void operator()(int64_t row, int64_t column) const {
    float& target = RowOf(out, row)[column];
    target = fmaf(RowOf(x, row)[column], factor, target);
  }
};

struct AddScaledRows {
  MatrixView x;
  const int64_t* rows;
  const float* factors;
  MatrixView out;

  __device__ void operator()(int64_t row, int64_t column) const {
    float& target = RowOf(out, rows[row])[column];
    target = fmaf(RowOf(x, row)[column], factors[row], target);
  }
};

struct GatherRows {
  MatrixView x;
  const int64_t* rows;
  MatrixView out;

  __device__ void operator()(int64_t row, int64_t column) const {
    RowOf(out, row)[column] = RowOf(x, rows[row])[column];
  }
};

struct SoftCap {
  float cap;
  MatrixView x;

  __device__ void operator()(int64_t row, int64_t column) const {
    float& target = RowOf(x, row)[column];
    target = SoftCapped(target, cap);
  }
};

}  // namespace

void LaunchRmsNorm(Launcher& launcher, const NormArgs& args) {
  LaunchNorm<false>(launcher, "RmsNorm", args);
}

void LaunchLayerNorm(Launcher& launcher, const NormArgs& args) {
  LaunchNorm<true>(launcher, "LayerNorm", args);
}

void LaunchRope(Launcher& launcher, const DeviceRopeArgs& args) {
  const dim3 blocks(NumBlocks(args.pairs, kRopeThreads),
                    static_cast<unsigned int>(std::min(args.x.rows, kMaxRowBlocks)));
  launcher.Launch("Rope", blocks, kRopeThreads, RopeKernel, args);
}

void LaunchActivate(Launcher& launcher, Activation activation, MatrixView x, MatrixView up) {
  const auto launch = [&](auto body) {
    LaunchElements(launcher, "Activate", x.rows, x.columns, body);
  };
  switch (activation) {
    case Activation::kNone:
      return launch(Activate<Activation::kNone>{x, up});
    case Activation::kRelu:
      return launch(Activate<Activation::kRelu>{x, up});
    case Activation::kSilu:
      return launch(Activate<Activation::kSilu>{x, up});
    case Activation::kGeluTanh:
      return launch(Activate<Activation::kGeluTanh>{x, up});
    case Activation::kGeluErf:
      return launch(Activate<Activation::kGeluErf>{x, up});
  }
}

void LaunchScale(Launcher& launcher, float factor, MatrixView x) {
  LaunchElements(launcher, "Scale", x.rows, x.columns, Scale{factor, x});
}

void LaunchAddScaled(Launcher& launcher, MatrixView x, float factor, MatrixView out) {
  LaunchElements(launcher, "AddScaled", x.rows, x.columns, AddScaled{x, factor, out});
}

void LaunchSoftCap(Launcher& launcher, float cap, MatrixView x) {
  LaunchElements(launcher, "SoftCap", x.rows, x.columns, SoftCap{cap, x});
}

void LaunchAddScaledRows(Launcher& launcher, MatrixView x, const int64_t* rows,
                         const float* factors, MatrixView out) {
  LaunchElements(launcher, "AddScaledRows", x.rows, x.columns,
                 AddScaledRows{x, rows, factors, out});
}

void LaunchGatherRows(Launcher& launcher, MatrixView x, const int64_t* rows, MatrixView out) {
  LaunchElements(launcher, "GatherRows", out.rows, out.columns, GatherRows{x, rows, out});
}

}  // namespace nightshift::cuda
