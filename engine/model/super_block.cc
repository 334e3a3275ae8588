#include "engine/model/super_block.h"

#include <array>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/convert.h"

namespace nightshift {
namespace {

using Values = std::span<float, kSuperBlockValues>;

// Scale and minimum of a sub-block.
struct SubBlock {
  float scale = 0.0F;
  float minimum = 0.0F;
};

float HalfAt(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return F16ToF32(bits);
}

// bytes: scales[16] (low half scale, high half minimum), codes[64], d, dmin.
// Each 32 bytes of codes hold 128 values: 32 in their lowest two bits, 32 in the next two, ...
void ExpandQ2K(const uint8_t* block, Values values) {
  const uint8_t* const codes = block + 16;
  const float d = HalfAt(block + 80);
  const float dmin = HalfAt(block + 82);
  for (size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(block[sub] & 15);
    const float minimum = dmin * static_cast<float>(block[sub] >> 4);
    const uint8_t* const source = codes + sub / 8 * 32 + sub % 2 * 16;
    const int shift = static_cast<int>(sub % 8 / 2 * 2);
    for (size_t i = 0; i < 16; ++i) {
      values[sub * 16 + i] = scale * static_cast<float>((source[i] >> shift) & 3) - minimum;
    }
  }
}

// Sixteen scales of 6 bits, less 32: low halves in bytes 0 to 7, high quarters in bytes 8 to 11.
std::array<float, 16> ScalesOfQ3K(const uint8_t* packed, float d) {
  std::array<float, 16> scales{};
  for (size_t i = 0; i < scales.size(); ++i) {
    const int low = (packed[i % 8] >> (4 * (i / 8))) & 15;
    const int high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
    scales[i] = d * static_cast<float>((low | (high << 4)) - 32);
  }
  return scales;
}

// bytes: high bits[32], codes[64], scales[12], d. Codes as in Q2_K; bit j of a byte of the high
// bits belongs to values 32 j to 32 j + 31 and is set where 4 is *not* subtracted.
void ExpandQ3K(const uint8_t* block, Values values) {
  const std::array<float, 16> scales = ScalesOfQ3K(block + 96, HalfAt(block + 108));
  for (size_t sub = 0; sub < 16; ++sub) {
    const uint8_t* const high = block + sub % 2 * 16;
    const uint8_t* const source = block + 32 + sub / 8 * 32 + sub % 2 * 16;
    const int shift = static_cast<int>(sub % 8 / 2 * 2);
    const int bit = static_cast<int>(sub / 2);
    for (size_t i = 0; i < 16; ++i) {
      const int code = ((source[i] >> shift) & 3) + ((high[i] >> bit) & 1) * 4 - 4;
      values[sub * 16 + i] = scales[sub] * static_cast<float>(code);
    }
  }
}

// Eight scales and minimums of 6 bits in 12 bytes: the first four scales in bytes 0 to 3, the first
// four minimums in bytes 4 to 7, of the others the low halves in bytes 8 to 11 and the high
// quarters on top of those before.
std::array<SubBlock, 8> SubBlocksOf(const uint8_t* packed, float d, float dmin) {
  std::array<SubBlock, 8> result;
  for (size_t i = 0; i < 4; ++i) {
    const int scale = packed[i] & 63;
    const int minimum = packed[i + 4] & 63;
    result[i] = {d * static_cast<float>(scale), dmin * static_cast<float>(minimum)};
    const int high_scale = (packed[i + 8] & 15) | ((packed[i] >> 6) << 4);
    const int high_minimum = (packed[i + 8] >> 4) | ((packed[i + 4] >> 6) << 4);
    result[i + 4] = {d * static_cast<float>(high_scale), dmin * static_cast<float>(high_minimum)};
  }
  return result;
}

// bytes: d, dmin, scales and minimums[12], codes[128]. Each 32 bytes of codes hold 64 values: 32
// low halves, then 32 high halves.
void ExpandQ4K(const uint8_t* block, Values values) {
  const std::array<SubBlock, 8> subs = SubBlocksOf(block + 4, HalfAt(block), HalfAt(block + 2));
  for (size_t sub = 0; sub < 8; ++sub) {
    const uint8_t* const source = block + 16 + sub / 2 * 32;
    const int shift = sub % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      values[sub * 32 + i] =
          subs[sub].scale * static_cast<float>((source[i] >> shift) & 15) - subs[sub].minimum;
    }
  }
}

// bytes: d, dmin, scales and minimums[12], fifth bits[32], codes[128]. Codes as in Q4_K; bit j of a
// byte of the fifth bits belongs to values 32 j to 32 j + 31.
void ExpandQ5K(const uint8_t* block, Values values) {
  const std::array<SubBlock, 8> subs = SubBlocksOf(block + 4, HalfAt(block), HalfAt(block + 2));
  const uint8_t* const high = block + 16;
  for (size_t sub = 0; sub < 8; ++sub) {
    const uint8_t* const source = block + 48 + sub / 2 * 32;
    const int shift = sub % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      const int code = ((source[i] >> shift) & 15) | (((high[i] >> sub) & 1) << 4);
      values[sub * 32 + i] = subs[sub].scale * static_cast<float>(code) - subs[sub].minimum;
    }
  }
}

// bytes: low halves[128], high quarters[64], signed scales[16], d. Each 64 bytes of low halves hold
// 128 values: 64 low halves, then 64 high halves; each 32 bytes of high quarters hold 128 values as
// Q2_K's codes do. Codes are less 32.
void ExpandQ6K(const uint8_t* block, Values values) {
  const float d = HalfAt(block + 208);
  for (size_t sub = 0; sub < 16; ++sub) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + sub]));
    const uint8_t* const low = block + sub / 8 * 64 + sub % 4 * 16;
    const uint8_t* const high = block + 128 + sub / 8 * 32 + sub % 2 * 16;
    const int low_shift = sub % 8 < 4 ? 0 : 4;
    const int high_shift = static_cast<int>(sub % 8 / 2 * 2);
    for (size_t i = 0; i < 16; ++i) {
      const int code = (((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4)) - 32;
      values[sub * 16 + i] = scale * static_cast<float>(code);
    }
  }
}

}  // namespace

int64_t SuperBlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kQ2K:
      return 84;
    case DType::kQ3K:
      return 110;
    case DType::kQ4K:
      return 144;
    case DType::kQ5K:
      return 176;
    case DType::kQ6K:
      return 210;
    default:
      return 0;
  }
}

void ExpandSuperBlock(DType dtype, const std::byte* block, Values values) {
  const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(block);
  switch (dtype) {
    case DType::kQ2K:
      return ExpandQ2K(bytes, values);
    case DType::kQ3K:
      return ExpandQ3K(bytes, values);
    case DType::kQ4K:
      return ExpandQ4K(bytes, values);
    case DType::kQ5K:
      return ExpandQ5K(bytes, values);
    case DType::kQ6K:
      return ExpandQ6K(bytes, values);
    default:
      CHECK(SuperBlockBytes(dtype) > 0);
  }
}

}  // namespace nightshift
