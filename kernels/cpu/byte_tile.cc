#include "kernels/cpu/byte_tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/convert_simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/byte_tile.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Codes of 4 bits stay as they are, 0 to 15. Those of 8 bits are signed: unsigned ones less 128.
HWY_INLINE int32_t ZeroOf(const GroupFormat& format) {
  if (format.bits == 4) return format.zero;
  return format.has_minimum ? -128 : 0;
}

// [K/4][64][4] of a block, then its scales and minimums.
void ExpandBytes(const GroupBlock& block, int64_t /*width*/, std::byte* target) {
  const int64_t quads = (block.pairs + 1) / 2;
  if (block.format.bits == 4) {
    const auto* codes = reinterpret_cast<const uint8_t*>(block.panel) +
                        block.first_input / 2 * kPanelOutputs;
    auto* bytes = reinterpret_cast<uint8_t*>(target);
    for (int64_t quad = 0; quad < quads; ++quad, codes += 2 * kPanelOutputs) {
      for (int64_t n = 0; n < kPanelOutputs; ++n, bytes += 4) {
        const uint32_t low = codes[n];
        const uint32_t high = codes[kPanelOutputs + n];
        const uint32_t four = (low & 15U) | (low & 240U) << 4 | (high & 15U) << 16 |
                              (high & 240U) << 20;
        std::memcpy(bytes, &four, sizeof(four));
      }
    }
  } else {
    const std::byte* codes = block.panel + block.first_input * kPanelOutputs;
    const uint32_t flip = block.format.has_minimum ? 0x80808080U : 0;
    std::byte* bytes = target;
    for (int64_t quad = 0; quad < quads; ++quad, codes += 4 * kPanelOutputs) {
      for (int64_t n = 0; n < kPanelOutputs; ++n, bytes += 4) {
        uint16_t low = 0;
        uint16_t high = 0;
        std::memcpy(&low, codes + 2 * n, sizeof(low));
        std::memcpy(&high, codes + 2 * (kPanelOutputs + n), sizeof(high));
        const uint32_t four = (low | static_cast<uint32_t>(high) << 16) ^ flip;
        std::memcpy(bytes, &four, sizeof(four));
      }
    }
  }
  WidenNumbers(block, reinterpret_cast<float*>(target + quads * 4 * kPanelOutputs));
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
constexpr int64_t kLanes = 1;

// The sums of some outputs over the inputs of a group.
template <int kRows, bool kAreSmall>
HWY_INLINE void SumGroup(const int8_t* x, const std::byte* codes, int64_t quads,
                         int32_t (&sums)[kRows][kLanes]) {
  for (int64_t quad = 0; quad < quads; ++quad, x += 4, codes += 4 * kPanelOutputs) {
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < 4; ++i) {
        const int code = kAreSmall ? static_cast<int>(codes[i])
                                   : static_cast<int>(static_cast<int8_t>(codes[i]));
        sums[r][0] += code * x[r * kSegmentInputs + i];
      }
    }
  }
}
#else
#if HWY_TARGET == HWY_SSE4
using Register = __m128i;
#define OF_REGISTER(operation) _mm_##operation
#else
using Register = __m256i;
#define OF_REGISTER(operation) _mm256_##operation
#endif
constexpr int64_t kLanes = sizeof(Register) / sizeof(int32_t);

HWY_INLINE Register LoadRegister(const void* at) {
  Register loaded;
  std::memcpy(&loaded, at, sizeof(loaded));
  return loaded;
}
HWY_INLINE Register SetQuads(int32_t x) { return OF_REGISTER(set1_epi32)(x); }
HWY_INLINE Register MultiplyPairs(Register w, Register x) {
  return OF_REGISTER(maddubs_epi16)(w, x);
}
HWY_INLINE Register AddPairs(Register a) {
  return OF_REGISTER(madd_epi16)(a, OF_REGISTER(set1_epi16)(1));
}
HWY_INLINE Register AddSums(Register a, Register b) { return OF_REGISTER(add_epi32)(a, b); }

HWY_INLINE int32_t QuadAt(const int8_t* x) {
  int32_t quad = 0;
  std::memcpy(&quad, x, sizeof(quad));
  return quad;
}

// A sum of words holds the products of so many quads of codes up to 15: 8 * 2 * 15 * 127 < 2^15.
constexpr int64_t kQuadsOfWords = 8;

// The sums of kLanes outputs over the inputs of a group.
template <int kRows, bool kAreSmall>
HWY_INLINE void SumGroup(const int8_t* x, const std::byte* codes, int64_t quads,
                         int32_t (&out)[kRows][kLanes]) {
  Register sums[kRows];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) sums[r] = LoadRegister(out[r]);
  if constexpr (kAreSmall) {
    for (int64_t first = 0; first < quads; first += kQuadsOfWords) {
      const int64_t last = std::min(first + kQuadsOfWords, quads);
      Register words[kRows];
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) words[r] = SetQuads(0);
      for (int64_t quad = first; quad < last; ++quad, x += 4, codes += 4 * kPanelOutputs) {
        const Register w = LoadRegister(codes);
        HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
          const Register quads_of_row = SetQuads(QuadAt(x + r * kSegmentInputs));
          words[r] = OF_REGISTER(add_epi16)(words[r], MultiplyPairs(w, quads_of_row));
        }
      }
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) sums[r] = AddSums(sums[r], AddPairs(words[r]));
    }
  } else {
    for (int64_t quad = 0; quad < quads; ++quad, x += 4, codes += 4 * kPanelOutputs) {
      const Register w = LoadRegister(codes);
      const Register magnitudes = OF_REGISTER(abs_epi8)(w);
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
        const Register signs =
            OF_REGISTER(sign_epi8)(SetQuads(QuadAt(x + r * kSegmentInputs)), w);
        sums[r] = AddSums(sums[r], AddPairs(MultiplyPairs(magnitudes, signs)));
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) std::memcpy(out[r], &sums[r], sizeof(sums[r]));
}
#undef OF_REGISTER
#endif

// Rows by the 64 outputs of a block's groups.
template <int kRows, bool kAreSmall>
HWY_INLINE void MultiplyGroups(const TileArgs& args) {
  using Tag = hn::CappedTag<float, kLanes>;
  const Tag d;
  const GroupFormat& format = *args.format;
  const int64_t quads = (args.pairs + 1) / 2;
  const int64_t group_quads = format.group / 4;
  const int64_t groups = (quads + group_quads - 1) / group_quads;
  const auto* numbers = reinterpret_cast<const float*>(args.weights + quads * 4 * kPanelOutputs);
  const int32_t zero = ZeroOf(format);
  const ByteGroup* rows = args.groups;
  for (int64_t g = 0; g < groups; ++g, rows += args.group_stride, numbers += kPanelOutputs) {
    const int64_t first = g * group_quads;
    const int64_t count = std::min(group_quads, quads - first);
    const int64_t input = 4 * first;
    const auto* x = reinterpret_cast<const int8_t*>(args.x) +
                    input / kSegmentInputs * kSegmentInputs * kRows + input % kSegmentInputs;
    const std::byte* codes = args.weights + first * 4 * kPanelOutputs;
    const bool starts = args.starts && g == 0;
    for (int64_t n = 0; n < kPanelOutputs; n += kLanes) {
      alignas(64) int32_t sums[kRows][kLanes];
      for (int r = 0; r < kRows; ++r) std::fill_n(sums[r], kLanes, -zero * rows[r].sum);
      SumGroup<kRows, kAreSmall>(x, codes + 4 * n, count, sums);
      const auto scale = hn::LoadU(d, numbers + n);
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
        auto value = hn::Mul(
            hn::ConvertTo(d, hn::LoadU(hn::RebindToSigned<Tag>(), sums[r])), scale);
        if (format.has_minimum) {
          value = hn::MulAdd(hn::LoadU(d, numbers + groups * kPanelOutputs + n),
                             hn::Set(d, static_cast<float>(rows[r].sum)), value);
        }
        float* at = args.sums + r * kPanelOutputs + n;
        const auto sum = starts ? hn::Zero(d) : hn::LoadU(d, at);
        hn::StoreU(hn::MulAdd(value, hn::Set(d, rows[r].scale), sum), d, at);
      }
    }
  }
}

template <int kRows>
void MultiplyTileOf(const TileArgs& args) {
  args.format->bits == 4 ? MultiplyGroups<kRows, true>(args) : MultiplyGroups<kRows, false>(args);
}

const TileKernel& ByteTileKernelSimd() {
  static const TileKernel kKernel = {
      .input_bytes = 1,
      .many = {nullptr, MultiplyTileOf<1>, MultiplyTileOf<2>, MultiplyTileOf<3>, MultiplyTileOf<4>,
               MultiplyTileOf<5>, MultiplyTileOf<6>}};
  return kKernel;
}

const GroupKernel& ByteGroupKernelSimd() {
  static const GroupKernel kKernel = {.expand = ExpandBytes};
  return kKernel;
}

ByteGroup RoundGroupSimd(const float* source, int64_t count, int64_t group, int8_t* target) {
  // Adding it leaves the rounded number in the low bits.
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23
  constexpr uint32_t kRounderBits = 0x4b400000;
  // Bits of magnitudes are in the order of the magnitudes, and what is not finite is above all.
  uint32_t most_bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, source + i, sizeof(bits));
    most_bits = std::max(most_bits, bits & 0x7fffffffU);
  }
  float most = 0.0F;
  std::memcpy(&most, &most_bits, sizeof(most));
  const float inverse = most > 0.0F ? 127.0F / most : 0.0F;
  ByteGroup result = {.scale = most / 127.0F, .sum = 0};
  std::fill_n(target, group, int8_t{0});
  if (!(most <= std::numeric_limits<float>::max())) {
    result.scale = std::numeric_limits<float>::quiet_NaN();
    return result;
  }
  if (!(inverse <= std::numeric_limits<float>::max())) return result;
  for (int64_t i = 0; i < count; ++i) {
    const float rounded = source[i] * inverse + kRounder;
    uint32_t bits = 0;
    std::memcpy(&bits, &rounded, sizeof(bits));
    const auto code = static_cast<int32_t>(bits - kRounderBits);
    target[i] = static_cast<int8_t>(code);
    result.sum += code;
  }
  return result;
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(RoundGroupSimd);
HWY_EXPORT(ByteTileKernelSimd);
HWY_EXPORT(ByteGroupKernelSimd);

void WidenNumbers(const GroupBlock& block, float* target) {
  const int64_t group = block.format.group;
  const int64_t count = (2 * block.pairs + group - 1) / group * kPanelOutputs;
  const int64_t first = block.first_input / group * kPanelOutputs * 2;
  WidenF16(block.panel + block.planes.scales + first, count, target);
  if (block.format.has_minimum) {
    WidenF16(block.panel + block.planes.minimums + first, count, target + count);
  }
}

ByteGroup RoundToBytes(const float* source, int64_t count, int64_t group, std::byte* target) {
  return HWY_DYNAMIC_DISPATCH(RoundGroupSimd)(source, count, group,
                                              reinterpret_cast<int8_t*>(target));
}

const TileKernel& ByteTileKernel() {
  return HWY_DYNAMIC_DISPATCH(ByteTileKernelSimd)();
}

const GroupKernel& ByteGroupKernel() {
  return HWY_DYNAMIC_DISPATCH(ByteGroupKernelSimd)();
}

}  // namespace nightshift::cpu
#endif
