#include "kernels/cpu/matmul_tile.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <hwy/cache_control.h>

#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/byte_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tile.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

constexpr bool kIsWide = HWY_TARGET <= HWY_AVX3;  // 32 vector registers of 16 floats

// F32 and F16 weights as they lie: lanes alternate between even and odd inputs of outputs.
HWY_INLINE F32Vec LoadWeights(const float* source) {
  return hn::Load(F32Tag(), source);
}

HWY_INLINE F32Vec LoadWeights(const hwy::float16_t* source) {
  const hn::Rebind<hwy::float16_t, F32Tag> df16;
#if HWY_TARGET == HWY_SCALAR
  return hn::PromoteTo(F32Tag(), hn::LoadU(df16, source));
#else
  return hn::PromoteTo(F32Tag(), hn::Load(df16, source));
#endif
}

// The weights of a vector of outputs for the even (kParity 0) or odd input of a pair.
template <int kParity>
HWY_INLINE F32Vec LoadParity(const hwy::bfloat16_t* source) {
  const F32Tag d;
  const auto pairs = hn::Load(U32Tag(), reinterpret_cast<const uint32_t*>(source));
  if constexpr (kParity == 0) return hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  // Two shifts instead of a mask: with 16 registers a constant costs a sum its register.
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::ShiftRight<16>(pairs)));
}

template <int kParity, typename T>
HWY_INLINE F32Vec LoadParity(const T* source) {
  const F32Tag d;
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  return LoadWeights(source + kParity);
#else
  const auto low = LoadWeights(source);
  const auto high = LoadWeights(source + LaneCount());
  if constexpr (kParity == 0) return hn::ConcatEven(d, high, low);
  return hn::ConcatOdd(d, high, low);
#endif
}

// Sums of `kVectors` vectors of outputs for each of `kRows` rows.
template <int kRows, int kVectors>
struct Sums {
  HWY_INLINE void Load(const TileArgs& args) {
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        at[r][v] = args.starts
                       ? hn::Zero(F32Tag())
                       : hn::Load(F32Tag(), args.sums + r * kPanelOutputs + v * LaneCount());
      }
    }
  }
  HWY_INLINE void Store(const TileArgs& args) const {
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        hn::Store(at[r][v], F32Tag(), args.sums + r * kPanelOutputs + v * LaneCount());
      }
    }
  }
  // Adds the products of one input: x[r * kSegmentInputs] with w.
  HWY_INLINE void Add(const float* x, const F32Vec (&w)[kVectors]) {
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(F32Tag(), x[r * kSegmentInputs]);
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        at[r][v] = hn::MulAdd(factor, w[v], at[r][v]);
      }
    }
  }
  F32Vec at[kRows][kVectors];
};

// Calls body(x, pair) for each pair of the block; x is at the pair's inputs of the first row.
template <int kRows, typename Body>
HWY_INLINE void ForEachPair(const TileArgs& args, const Body& body) {
  const auto* x = reinterpret_cast<const float*>(args.x);
  for (int64_t first = 0; first < args.pairs; first += kSegmentInputs / 2) {
    const int64_t last = std::min(first + kSegmentInputs / 2, args.pairs);
    for (int64_t pair = first; pair < last; ++pair, x += 2) {
      body(x, pair);
    }
    x += (kRows - 1) * kSegmentInputs;
  }
}

template <int kParity, int kVectors, typename T>
HWY_INLINE void LoadVectors(const T* weights, F32Vec (&w)[kVectors]) {
  HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
    w[v] = LoadParity<kParity>(weights + 2 * v * LaneCount());
  }
}

// Vectors of a tile: enough independent sums to hide a multiply-add's latency, and with the
// weights and an input no more than the registers.
constexpr int NumVectors(int rows) {
  if (kIsWide) return 4;
  return rows == 1 ? 8 : rows == 2 ? 4 : 2;
}

// Weights in place. The even inputs of all rows, then the odd ones, so that half of the weights are
// live at a time.
template <typename T, int kRows, bool kTouches>
HWY_INLINE void MultiplyInPlace(const TileArgs& args) {
  constexpr int kVectors = NumVectors(kRows);
  Sums<kRows, kVectors> sums;
  sums.Load(args);
  const T* weights = reinterpret_cast<const T*>(args.weights);
  ForEachPair<kRows>(args, [&](const float* x, int64_t) HWY_ATTR {
    // The first part of the width touches the lines of all, in order: caches fetch ahead of a
    // stream, not of strides.
    if constexpr (kTouches) {
      for (int64_t i = 0; i < 2 * kPanelOutputs; i += 64 / static_cast<int64_t>(sizeof(T))) {
        hwy::Prefetch(weights + i);
      }
    }
    F32Vec w[kVectors];
    LoadVectors<0>(weights, w);
    sums.Add(x, w);
    LoadVectors<1>(weights, w);
    sums.Add(x + 1, w);
    weights += 2 * kPanelOutputs;
  });
  sums.Store(args);
}

template <typename T, int kRows>
void TileInPlace(const TileArgs& args) {
  const int64_t width = NumVectors(kRows) * LaneCount();
  MultiplyInPlace<T, kRows, !kIsWide>(args);
  for (int64_t n = width; n < kPanelOutputs; n += width) {
    TileArgs part = args;
    part.weights += n * 2 * static_cast<int64_t>(sizeof(T));
    part.sums += n;
    MultiplyInPlace<T, kRows, false>(part);
  }
}

constexpr int kWideVectors = NumVectors(kMaxTileRows);

// Weights expanded by ExpandBlock.
template <int kRows>
void TileExpanded(const TileArgs& args) {
  Sums<kRows, kWideVectors> sums;
  sums.Load(args);
  const auto* weights = reinterpret_cast<const float*>(args.weights);
  const std::byte* next = args.next;
  ForEachPair<kRows>(args, [&](const float* x, int64_t) HWY_ATTR {
    __builtin_prefetch(next, 0, 2);
    next += 64;
    HWY_UNROLL(2) for (int parity = 0; parity < 2; ++parity) {
      F32Vec w[kWideVectors];
      HWY_UNROLL(8) for (int v = 0; v < kWideVectors; ++v) {
        w[v] = hn::Load(F32Tag(), weights + v * LaneCount());
      }
      sums.Add(x + parity, w);
      weights += kWideVectors * LaneCount();
    }
  });
  sums.Store(args);
}

template <typename T>
void ExpandBlock(const std::byte* weights, int64_t pairs, float* target) {
  const int64_t width = kWideVectors * LaneCount();
  for (int64_t n = 0; n < kPanelOutputs; n += width) {
    const T* source = reinterpret_cast<const T*>(weights) + 2 * n;
    for (int64_t pair = 0; pair < pairs; ++pair, source += 2 * kPanelOutputs, target += 2 * width) {
      HWY_UNROLL(8) for (int v = 0; v < kWideVectors; ++v) {
        const int64_t lane = v * LaneCount();
        hn::Store(LoadParity<0>(source + 2 * lane), F32Tag(), target + lane);
        hn::Store(LoadParity<1>(source + 2 * lane), F32Tag(), target + width + lane);
      }
    }
  }
}

template <typename T>
TileKernel KernelOf() {
  TileKernel kernel = {
      .input_bytes = sizeof(float),
      // Below, expanding costs more than waiting for memory.
      .most_few = kIsWide ? 24 : 5,
      .few_rows = kIsWide ? 6 : 5,  // parting a pair's weights needs the sixth row's registers
      .parts_few = !kIsWide,
      .few = {nullptr, TileInPlace<T, 1>, TileInPlace<T, 2>, TileInPlace<T, 3>, TileInPlace<T, 4>,
              TileInPlace<T, 5>, kIsWide ? TileInPlace<T, 6> : nullptr},
      .many = {nullptr, TileExpanded<1>, TileExpanded<2>, TileExpanded<3>, TileExpanded<4>,
               TileExpanded<5>, TileExpanded<6>},
      .expand = ExpandBlock<T>};
  kernel.expanded_outputs = kWideVectors * LaneCount();
  return kernel;
}

// Weights come expanded for few rows, too.
TileKernel KernelOfGroups() {
  TileKernel kernel = KernelOf<float>();
  std::copy(std::begin(kernel.many), std::end(kernel.many), std::begin(kernel.few));
  kernel.few_rows = kMaxTileRows;
  kernel.parts_few = false;
  kernel.expand = nullptr;
  return kernel;
}

const TileKernel& TileKernelSimd(TileKind kind) {
  static const TileKernel kF32 = KernelOf<float>();
  static const TileKernel kF16 = KernelOf<hwy::float16_t>();
  static const TileKernel kBF16 = KernelOf<hwy::bfloat16_t>();
  static const TileKernel kGroups = KernelOfGroups();
  if (IsOfGroups(kind)) return kGroups;
  return kind == TileKind::kF32 ? kF32 : kind == TileKind::kF16 ? kF16 : kBF16;
}

void StoreSumsSimd(const StoreSumsArgs& args) {
  const int64_t lanes = LaneCount();
  for (int64_t t = 0; t < args.out.rows; ++t) {
    float* out = args.out.row(t);
    const float* sums = args.sums + t * kPanelOutputs;
    for (int64_t n = 0; n < args.out.columns; n += lanes) {
      const int64_t part = std::min(lanes, args.out.columns - n);
      F32Vec value = hn::Load(F32Tag(), sums + n);
      if (args.bias != nullptr) value = hn::Add(value, LoadFirst(args.bias + n, part));
      if (args.accumulate) value = hn::Add(LoadFirst(out + n, part), value);
      StoreFirst(value, out + n, part);
    }
  }
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(TileKernelSimd);
HWY_EXPORT(StoreSumsSimd);

const TileKernel& TileKernelOf(TileKind kind) {
  if (kind == TileKind::kBF16Dots || kind == TileKind::kGroupsDots) return BF16DotKernel();
  if (IsOfByteDots(kind)) return ByteDotKernel();
  if (IsOfBytes(kind)) return ByteTileKernel();
  return HWY_DYNAMIC_DISPATCH(TileKernelSimd)(kind);
}

void StoreSums(const StoreSumsArgs& args) {
  HWY_DYNAMIC_DISPATCH(StoreSumsSimd)(args);
}

}  // namespace nightshift::cpu
#endif
