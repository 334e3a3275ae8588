#include "kernels/cpu/group_tile.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/byte_tile.h"
#include "kernels/cpu/convert_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/group_tile.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

constexpr bool kIsWide = HWY_TARGET <= HWY_AVX3;
using I32Tag = hn::RebindToSigned<F32Tag>;
using I32Vec = hn::Vec<I32Tag>;

// The codes of a pair of inputs of LaneCount() outputs.
struct CodePairs {
  I32Vec even;
  I32Vec odd;
};

template <class Kind>
HWY_INLINE CodePairs LoadCodePairs(const std::byte* codes) {
  const I32Tag d;
  if constexpr (Kind::kBits == 4) {
    const auto bytes =
        hn::LoadU(hn::Rebind<uint8_t, F32Tag>(), reinterpret_cast<const uint8_t*>(codes));
    const auto pairs = hn::PromoteTo(d, bytes);
    const CodePairs result = {hn::And(pairs, hn::Set(d, 15)), hn::ShiftRight<4>(pairs)};
    if constexpr (!Kind::kSigned) return result;
    const auto zero = hn::Set(d, 8);
    return {hn::Sub(result.even, zero), hn::Sub(result.odd, zero)};
  } else if constexpr (Kind::kSigned) {
    const auto pairs = hn::PromoteTo(
        d, hn::LoadU(hn::Rebind<int16_t, F32Tag>(), reinterpret_cast<const int16_t*>(codes)));
    return {hn::ShiftRight<24>(hn::ShiftLeft<24>(pairs)), hn::ShiftRight<8>(pairs)};
  } else {
    const auto pairs = hn::PromoteTo(
        d, hn::LoadU(hn::Rebind<uint16_t, F32Tag>(), reinterpret_cast<const uint16_t*>(codes)));
    return {hn::And(pairs, hn::Set(d, 255)), hn::ShiftRight<8>(pairs)};
  }
}

template <class Kind>
HWY_INLINE F32Vec ValueOf(I32Vec codes, F32Vec scale, F32Vec minimum) {
  const auto code = hn::ConvertTo(F32Tag(), codes);
  // The product is exact, so the sum rounds once, fused or not.
  if constexpr (Kind::kHasMinimum) return hn::MulAdd(code, scale, minimum);
  return hn::Mul(code, scale);
}

// Scales and minimums of the 64 outputs of a group.
struct GroupNumbers {
  alignas(64) float scales[kPanelOutputs];
  alignas(64) float minimums[kPanelOutputs];
};

template <class Kind>
HWY_INLINE void ReadNumbers(const GroupBlock& block, int64_t input, GroupNumbers& numbers) {
  const int64_t offset = input / block.format.group * kPanelOutputs * 2;
  WidenF16(block.panel + block.planes.scales + offset, kPanelOutputs, numbers.scales);
  if constexpr (Kind::kHasMinimum) {
    WidenF16(block.panel + block.planes.minimums + offset, kPanelOutputs, numbers.minimums);
  }
}

template <class Kind>
HWY_INLINE F32Vec LoadMinimum(const GroupNumbers& numbers, int64_t n) {
  if constexpr (Kind::kHasMinimum) return hn::Load(F32Tag(), numbers.minimums + n);
  return hn::Zero(F32Tag());
}

template <class Kind>
HWY_INLINE const std::byte* CodesAt(const GroupBlock& block, int64_t input) {
  return block.panel + input / 2 * kPanelOutputs * Kind::kPairBytes;
}

// Calls body(first pair of the block, count) for each group of the block.
template <typename Body>
HWY_INLINE void ForEachGroup(const GroupBlock& block, const Body& body) {
  const int64_t group_pairs = block.format.group / 2;
  for (int64_t pair = 0; pair < block.pairs; pair += group_pairs) {
    body(pair, std::min(group_pairs, block.pairs - pair));
  }
}

// A block's values to f32 [64/W][K][W].
template <class Kind, bool kRounds>
void ExpandOf(const GroupBlock& block, int64_t width, float* target) {
  const F32Tag d;
  const int64_t lanes = LaneCount();
  const auto store = [&](F32Vec value, float* at) HWY_ATTR {
    if constexpr (kRounds) value = RoundLanesThroughBF16(value);
    hn::Store(value, d, at);
  };
  GroupNumbers numbers;
  ForEachGroup(block, [&](int64_t first, int64_t count) HWY_ATTR {
    const int64_t input = block.first_input + 2 * first;
    ReadNumbers<Kind>(block, input, numbers);
    for (int64_t n = 0; n < kPanelOutputs; n += lanes) {
      const auto scale = hn::Load(d, numbers.scales + n);
      const auto minimum = LoadMinimum<Kind>(numbers, n);
      const std::byte* codes = CodesAt<Kind>(block, input) + n * Kind::kPairBytes;
      float* at = target + n / width * width * 2 * block.pairs + n % width + 2 * first * width;
      for (int64_t pair = 0; pair < count; ++pair, at += 2 * width) {
        const CodePairs pairs = LoadCodePairs<Kind>(codes);
        store(ValueOf<Kind>(pairs.even, scale, minimum), at);
        store(ValueOf<Kind>(pairs.odd, scale, minimum), at + width);
        codes += kPanelOutputs * Kind::kPairBytes;
      }
    }
  });
  if (block.first_input + 2 * block.pairs > block.inputs) {
    const int64_t last = 2 * block.pairs - 1;
    for (int64_t n = 0; n < kPanelOutputs; n += width) {
      std::fill_n(target + n * 2 * block.pairs + last * width, width, 0.0F);
    }
  }
}

// Vectors of outputs that rows are multiplied by at one time: sums, scales and minimums of these,
// and what is being made, fit the registers.
constexpr int NumVectors(int rows) {
  return kIsWide || rows == 1 ? 4 : 2;
}

template <class Kind, int kRows>
HWY_INLINE void MultiplyPart(const TileArgs& args, const GroupBlock& block, int64_t n) {
  constexpr int kVectors = NumVectors(kRows);
  const F32Tag d;
  const int64_t lanes = LaneCount();
  F32Vec sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      sums[r][v] =
          args.starts ? hn::Zero(d) : hn::Load(d, args.sums + r * kPanelOutputs + n + v * lanes);
    }
  }
  GroupNumbers numbers;
  const auto* rows = reinterpret_cast<const float*>(args.x);
  ForEachGroup(block, [&](int64_t first, int64_t count) HWY_ATTR {
    const int64_t input = block.first_input + 2 * first;
    ReadNumbers<Kind>(block, input, numbers);
    F32Vec scales[kVectors];
    F32Vec minimums[kVectors];
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      scales[v] = hn::Load(d, numbers.scales + n + v * lanes);
      minimums[v] = LoadMinimum<Kind>(numbers, n + v * lanes);
    }
    const std::byte* codes = CodesAt<Kind>(block, input) + n * Kind::kPairBytes;
    // A group lies in one segment of the rows.
    const float* x =
        rows + 2 * first / kSegmentInputs * kSegmentInputs * kRows + 2 * first % kSegmentInputs;
    for (int64_t pair = 0; pair < count; ++pair, x += 2) {
      CodePairs pairs[kVectors];
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        pairs[v] = LoadCodePairs<Kind>(codes + v * lanes * Kind::kPairBytes);
      }
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        const auto weight = ValueOf<Kind>(pairs[v].even, scales[v], minimums[v]);
        HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
          sums[r][v] = hn::MulAdd(hn::Set(d, x[r * kSegmentInputs]), weight, sums[r][v]);
        }
      }
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        const auto weight = ValueOf<Kind>(pairs[v].odd, scales[v], minimums[v]);
        HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
          sums[r][v] = hn::MulAdd(hn::Set(d, x[r * kSegmentInputs + 1]), weight, sums[r][v]);
        }
      }
      codes += kPanelOutputs * Kind::kPairBytes;
    }
  });
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, args.sums + r * kPanelOutputs + n + v * lanes);
    }
  }
}

template <class Kind, int kRows>
void MultiplyRows(const TileArgs& args, const GroupBlock& block) {
  for (int64_t n = 0; n < kPanelOutputs; n += NumVectors(kRows) * LaneCount()) {
    MultiplyPart<Kind, kRows>(args, block, n);
  }
}

constexpr int64_t kMostInPlace = 4;

template <class Kind>
void MultiplyOf(const TileArgs& args, const GroupBlock& block, int64_t rows) {
  using Rows = void (*)(const TileArgs&, const GroupBlock&);
  constexpr Rows kByRows[kMostInPlace + 1] = {nullptr, MultiplyRows<Kind, 1>, MultiplyRows<Kind, 2>,
                                              MultiplyRows<Kind, 3>, MultiplyRows<Kind, 4>};
  kByRows[rows](args, block);
}

template <bool kRounds>
void ExpandSimd(const GroupBlock& block, int64_t width, std::byte* target) {
  WithCodes(block.format, [&](auto kind) HWY_ATTR {
    ExpandOf<decltype(kind), kRounds>(block, width, reinterpret_cast<float*>(target));
  });
}

void MultiplySimd(const TileArgs& args, const GroupBlock& block, int64_t rows) {
  WithCodes(block.format,
            [&](auto kind) HWY_ATTR { MultiplyOf<decltype(kind)>(args, block, rows); });
}

const GroupKernel& GroupKernelSimd(bool rounds) {
  static const GroupKernel kExact = {
      .expand = ExpandSimd<false>, .most_in_place = kMostInPlace, .multiply = MultiplySimd};
  static const GroupKernel kRounded = {.expand = ExpandSimd<true>};
  return rounds ? kRounded : kExact;
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(GroupKernelSimd);

const GroupKernel& GroupKernelOf(TileKind kind) {
  if (IsOfByteDots(kind)) return ByteDotGroupKernel();
  if (IsOfBytes(kind)) return ByteGroupKernel();
  if (kind == TileKind::kGroupsDots) return GroupDotKernel();
  return HWY_DYNAMIC_DISPATCH(GroupKernelSimd)(kind == TileKind::kGroupsRounded);
}

}  // namespace nightshift::cpu
#endif
