#include "engine/model/gguf_types.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "engine/model/stored_panel.h"
#include "engine/model/super_block.h"
#include "kernels/base/check.h"
#include "kernels/panel_layout.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

constexpr int64_t kSmallBlock = 32;  // values of the types that are no super-blocks
constexpr int64_t kHalfBytes = 2;

constexpr std::array kTypes = {
    GgufType{0, "F32", DType::kF32, 1, 4, 0, -1, -1},
    GgufType{1, "F16", DType::kF16, 1, 2, 0, -1, -1},
    GgufType{30, "BF16", DType::kBF16, 1, 2, 0, -1, -1},
    GgufType{8, "Q8_0", DType::kI8G32, 32, 34, 8, 0, -1},
    GgufType{2, "Q4_0", DType::kI4G32, 32, 18, 4, 0, -1},
    GgufType{3, "Q4_1", DType::kU4G32, 32, 20, 4, 0, 2},
    GgufType{6, "Q5_0", DType::kI8G32, 32, 22, 5, 0, -1},
    GgufType{7, "Q5_1", DType::kU8G32, 32, 24, 5, 0, 2},
    GgufType{10, "Q2_K", DType::kQ2K, kSuperBlockValues, 84, 2, 80, 82},
    GgufType{11, "Q3_K", DType::kQ3K, kSuperBlockValues, 110, 3, 108, -1},
    GgufType{12, "Q4_K", DType::kQ4K, kSuperBlockValues, 144, 4, 0, 2},
    GgufType{13, "Q5_K", DType::kQ5K, kSuperBlockValues, 176, 5, 0, 2},
    GgufType{14, "Q6_K", DType::kQ6K, kSuperBlockValues, 210, 6, 208, -1},
};

struct NamedType {
  uint32_t number;
  const char* name;
};
// Known to ggml, not read by us. Q8_1 and Q8_K only ever hold activations.
constexpr std::array kOtherTypes = {
    NamedType{4, "Q4_2"},        NamedType{5, "Q4_3"},        NamedType{9, "Q8_1"},
    NamedType{15, "Q8_K"},       NamedType{16, "IQ2_XXS"},    NamedType{17, "IQ2_XS"},
    NamedType{18, "IQ3_XXS"},    NamedType{19, "IQ1_S"},      NamedType{20, "IQ4_NL"},
    NamedType{21, "IQ3_S"},      NamedType{22, "IQ2_S"},      NamedType{23, "IQ4_XS"},
    NamedType{24, "I8"},         NamedType{25, "I16"},        NamedType{26, "I32"},
    NamedType{27, "I64"},        NamedType{28, "F64"},        NamedType{29, "IQ1_M"},
    NamedType{31, "Q4_0_4_4"},   NamedType{32, "Q4_0_4_8"},   NamedType{33, "Q4_0_8_8"},
    NamedType{34, "TQ1_0"},      NamedType{35, "TQ2_0"},      NamedType{36, "IQ4_NL_4_4"},
    NamedType{37, "IQ4_NL_4_8"}, NamedType{38, "IQ4_NL_8_8"}, NamedType{39, "MXFP4"},
    NamedType{40, "NVFP4"},
};

// Code j of a block of 32, as its type counts it: from 0.
uint8_t CodeOf(const GgufType& type, const std::byte* block, int64_t j) {
  const bool has_minimum = type.minimum_at >= 0;
  const std::byte* codes = block + (has_minimum ? 2 * kHalfBytes : kHalfBytes);
  if (type.bits == 8) {
    return std::to_integer<uint8_t>(codes[j]);
  }
  uint32_t fifth_bits = 0;
  if (type.bits == 5) {
    std::memcpy(&fifth_bits, codes, sizeof(fifth_bits));
    codes += sizeof(fifth_bits);
  }
  const uint32_t pair = std::to_integer<uint32_t>(codes[j % (kSmallBlock / 2)]);
  const uint32_t low = j < kSmallBlock / 2 ? pair & 15U : pair >> 4;
  return static_cast<uint8_t>(low | (((fifth_bits >> j) & 1U) << 4));
}

// Packs one block of 32 of row `n`, whose first value is input `first_input`.
void PackSmallBlock(const GgufType& type, const PanelPlanes& planes, const std::byte* block,
                    int64_t n, int64_t first_input, std::byte* panel) {
  const int64_t group = first_input / kSmallBlock * kPanelOutputs + n;
  std::memcpy(panel + planes.scales + group * kHalfBytes, block + type.scale_at, kHalfBytes);
  if (type.minimum_at >= 0) {
    std::memcpy(panel + planes.minimums + group * kHalfBytes, block + type.minimum_at, kHalfBytes);
  }
  // The middle of Q5_0's codes is 16, of the type that keeps them 0.
  const int middle = type.bits == 5 && type.minimum_at < 0 ? 16 : 0;
  for (int64_t j = 0; j < kSmallBlock; j += 2) {
    const int even = CodeOf(type, block, j) - middle;
    const int odd = CodeOf(type, block, j + 1) - middle;
    const int64_t element = PanelOffset(n, first_input + j, planes.padded_inputs);
    if (type.bits == 4) {
      panel[element / 2] = static_cast<std::byte>(even | (odd << 4));
    } else {
      panel[element] = static_cast<std::byte>(even);
      panel[element + 1] = static_cast<std::byte>(odd);
    }
  }
}

bool IsFiniteHalf(const std::byte* half) {
  uint16_t bits = 0;
  std::memcpy(&bits, half, sizeof(bits));
  return (bits & 0x7c00U) != 0x7c00U;
}

}  // namespace

const GgufType* FindGgufType(uint32_t number) {
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [number](const GgufType& candidate) {
    return candidate.number == number;
  });
  return type == kTypes.end() ? nullptr : &*type;
}

std::string GgufTypeName(uint32_t number) {
  if (const GgufType* const type = FindGgufType(number)) {
    return type->name;
  }
  for (const NamedType& type : kOtherTypes) {
    if (type.number == number) {
      return type.name;
    }
  }
  return absl::StrCat("number ", number);
}

std::string SupportedGgufTypes() {
  std::string text;
  for (const GgufType& type : kTypes) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", type.name);
  }
  return text;
}

std::optional<int64_t> FirstNonFiniteBlock(const GgufType& type, std::span<const std::byte> row) {
  const int64_t num_blocks = static_cast<int64_t>(row.size()) / type.bytes;
  for (int64_t i = 0; i < num_blocks; ++i) {
    const std::byte* const block = row.data() + i * type.bytes;
    if (!IsFiniteHalf(block + type.scale_at) ||
        (type.minimum_at >= 0 && !IsFiniteHalf(block + type.minimum_at))) {
      return i;
    }
  }
  return std::nullopt;
}

void PackBlocks(const GgufType& type, std::span<const std::byte> source, int64_t rows,
                int64_t inputs, std::span<std::byte> panel) {
  CHECK(!type.is_float());
  CHECK_EQ(inputs % type.values, 0);
  const int64_t num_blocks = inputs / type.values;
  CHECK_EQ(static_cast<int64_t>(panel.size()), StoredPanelBytes(type.stored, inputs));
  CHECK_LE(rows * num_blocks * type.bytes, static_cast<int64_t>(source.size()));
  if (rows < kPanelOutputs) {
    std::fill(panel.begin(), panel.end(), std::byte{0});
  }
  const bool super_blocks = SuperBlockBytes(type.stored) > 0;
  const PanelPlanes planes = super_blocks ? PanelPlanes{} : PlanesOf(type.stored, inputs);
  const std::byte* block = source.data();
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t i = 0; i < num_blocks; ++i, block += type.bytes) {
      if (super_blocks) {
        std::copy_n(block, type.bytes, panel.data() + (i * kPanelOutputs + n) * type.bytes);
      } else {
        PackSmallBlock(type, planes, block, n, i * kSmallBlock, panel.data());
      }
    }
  }
}

}  // namespace nightshift
