#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Inputs of one pass over the rows, even. 1024 x 64 weights are 128 KiB of 16-bit types and 256 KiB
// of f32, which stay in a 512 KiB second-level cache while all rows pass.
constexpr int64_t kBlockInputs = 1024;

// The weights of one k pair for a vector of outputs: `even` belongs to k, `odd` to k + 1.
struct WeightPair {
  F32Vec even;
  F32Vec odd;
};

template <DType type>
HWY_INLINE WeightPair LoadPair(const std::byte* source) {
  const F32Tag d;
#if HWY_TARGET == HWY_SCALAR
  if constexpr (type == DType::kF32) {
    float pair[2];
    std::memcpy(pair, source, sizeof(pair));
    return {hn::Set(d, pair[0]), hn::Set(d, pair[1])};
  }
#endif
  if constexpr (type == DType::kBF16) {
    const U32Tag du;
    const auto bits = hn::Load(du, reinterpret_cast<const uint32_t*>(source));
    // Two shifts instead of a mask: with 16 registers a constant costs a sum its register.
    return {hn::BitCast(d, hn::ShiftLeft<16>(bits)),
            hn::BitCast(d, hn::ShiftLeft<16>(hn::ShiftRight<16>(bits)))};
  }
#if HWY_TARGET == HWY_SCALAR
  uint16_t pair[2];
  std::memcpy(pair, source, sizeof(pair));
  const hn::Rebind<hwy::float16_t, F32Tag> df16;
  const hn::Rebind<uint16_t, F32Tag> du16;
  return {hn::PromoteTo(d, hn::BitCast(df16, hn::Set(du16, pair[0]))),
          hn::PromoteTo(d, hn::BitCast(df16, hn::Set(du16, pair[1])))};
#else
  if constexpr (type == DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(source);
    const auto low = hn::Load(d, values);
    const auto high = hn::Load(d, values + LaneCount());
    return {hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)};
  } else {
    const hn::Rebind<hwy::float16_t, F32Tag> df16;
    const auto* values = reinterpret_cast<const hwy::float16_t*>(source);
    const auto low = hn::PromoteTo(d, hn::Load(df16, values));
    const auto high = hn::PromoteTo(d, hn::Load(df16, values + LaneCount()));
    return {hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)};
  }
#endif
}

// `kRows` rows by `kVectors` vectors of outputs over inputs [first, last) of the panel.
// weights: at k = 0 of the tile's first output. acc: [kRows][64], continued.
template <DType type, int kRows, int kVectors>
HWY_INLINE void MultiplyTile(const float* x, int64_t x_stride, const std::byte* weights,
                             int64_t first, int64_t last, float* acc) {
  constexpr int64_t kElementBytes = type == DType::kF32 ? 4 : 2;
  constexpr int64_t kPairBytes = 2 * kPanelOutputs * kElementBytes;
  const F32Tag d;
  const int64_t lanes = LaneCount();
  F32Vec sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Load(d, acc + r * kPanelOutputs + v * lanes);
    }
  }
  const std::byte* pair = weights + first / 2 * kPairBytes;
  const int64_t last_whole = last & ~int64_t{1};
  for (int64_t k = first; k < last_whole; k += 2, pair += kPairBytes) {
    WeightPair w[kVectors];
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      w[v] = LoadPair<type>(pair + v * lanes * 2 * kElementBytes);
    }
    // Even inputs of all rows, then odd ones: half of the weights are live at a time.
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, x[r * x_stride + k]);
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(factor, w[v].even, sums[r][v]);
      }
    }
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, x[r * x_stride + k + 1]);
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(factor, w[v].odd, sums[r][v]);
      }
    }
  }
  if (last_whole < last) {  // K is odd: its last pair has one real input
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      const WeightPair w = LoadPair<type>(pair + v * lanes * 2 * kElementBytes);
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::MulAdd(hn::Set(d, x[r * x_stride + last_whole]), w.even, sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, acc + r * kPanelOutputs + v * lanes);
    }
  }
}

// All 64 outputs of `kRows` rows.
template <DType type, int kRows, int kVectors>
void MultiplyRows(const PanelArgs& args, int64_t row, int64_t first, int64_t last) {
  constexpr int64_t kElementBytes = type == DType::kF32 ? 4 : 2;
  const int64_t tile_outputs = kVectors * LaneCount();
  for (int64_t n = 0; n < kPanelOutputs; n += tile_outputs) {
    MultiplyTile<type, kRows, kVectors>(args.x.row(row), args.x.stride,
                                        args.panel + n * 2 * kElementBytes, first, last,
                                        args.accumulators + row * kPanelOutputs + n);
  }
}

// Rows and vectors of the widest tile: its sums, one pair of weights a vector and one input fit
// into 32 registers as 6 x 4, into 16 registers as 5 x 2 (4 x 2 for F16, whose widening needs
// more). A single row takes more vectors, so that enough independent sums hide the multiply-add's
// latency.
#if HWY_TARGET <= HWY_AVX3
template <DType type>
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
constexpr int kRowVectors = 4;
#else
template <DType type>
constexpr int kTileRows = type == DType::kF16 ? 4 : 5;
constexpr int kTileVectors = 2;
constexpr int kRowVectors = 8;
#endif

template <DType type>
void MultiplyBlock(const PanelArgs& args, int64_t first, int64_t last) {
  int64_t row = 0;
  for (; args.x.rows - row >= kTileRows<type>; row += kTileRows<type>) {
    MultiplyRows<type, kTileRows<type>, kTileVectors>(args, row, first, last);
  }
  for (; args.x.rows - row >= 3; row += 3) {
    MultiplyRows<type, 3, kTileVectors>(args, row, first, last);
  }
  for (; args.x.rows - row >= 2; row += 2) {
    MultiplyRows<type, 2, kTileVectors>(args, row, first, last);
  }
  for (; row < args.x.rows; ++row) {
    MultiplyRows<type, 1, kRowVectors>(args, row, first, last);
  }
}

void StoreOutputs(const PanelArgs& args) {
  const int64_t lanes = LaneCount();
  for (int64_t t = 0; t < args.out.rows; ++t) {
    float* out = args.out.row(t);
    const float* acc = args.accumulators + t * kPanelOutputs;
    for (int64_t n = 0; n < args.out.columns; n += lanes) {
      const int64_t part = std::min(lanes, args.out.columns - n);
      F32Vec value = hn::Load(F32Tag(), acc + n);
      if (args.bias != nullptr) value = hn::Add(value, LoadFirst(args.bias + n, part));
      if (args.accumulate) value = hn::Add(LoadFirst(out + n, part), value);
      StoreFirst(value, out + n, part);
    }
  }
}

void MultiplyPanelSimd(const PanelArgs& args) {
  std::memset(args.accumulators, 0,
              static_cast<size_t>(args.x.rows * kPanelOutputs) * sizeof(float));
  for (int64_t first = 0; first < args.x.columns; first += kBlockInputs) {
    const int64_t last = std::min(first + kBlockInputs, args.x.columns);
    switch (args.weight_type) {
      case DType::kF32:
        MultiplyBlock<DType::kF32>(args, first, last);
        break;
      case DType::kF16:
        MultiplyBlock<DType::kF16>(args, first, last);
        break;
      default:
        MultiplyBlock<DType::kBF16>(args, first, last);
        break;
    }
  }
  StoreOutputs(args);
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(MultiplyPanelSimd);

void MultiplyPanel(const PanelArgs& args) {
  HWY_DYNAMIC_DISPATCH(MultiplyPanelSimd)(args);
}

}  // namespace nightshift::cpu
#endif
