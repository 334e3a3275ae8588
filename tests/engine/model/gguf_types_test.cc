// Every quantised type of GGUF, packed into panels and expanded again, against the values of the
// `gguf` package (tests/data/make_quant_oracles.py), bit for bit.
#include "engine/model/gguf_types.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/stored_panel.h"
#include "kernels/base/checksum.h"
#include "kernels/panel_layout.h"
#include "tests/support/expand_panel.h"
#include "tests/support/golden.h"

namespace nightshift {
namespace {

constexpr char kFolder[] = TEST_DATA_DIR "/quants/";

const GgufType& TypeOf(const std::string& name) {
  static const std::map<std::string, uint32_t> kNumbers = {
      {"Q4_0", 2},  {"Q4_1", 3},  {"Q5_0", 6},  {"Q5_1", 7},  {"Q8_0", 8},
      {"Q2_K", 10}, {"Q3_K", 11}, {"Q4_K", 12}, {"Q5_K", 13}, {"Q6_K", 14}};
  return *FindGgufType(kNumbers.at(name));
}

// The values of rows of blocks, row-major: through a panel of the pack and back.
std::vector<float> ThroughAPanel(const GgufType& type, std::span<const std::byte> rows,
                                 int64_t num_rows, int64_t inputs) {
  std::vector<std::byte> panel(static_cast<size_t>(StoredPanelBytes(type.stored, inputs)),
                               std::byte{0xcd});
  PackBlocks(type, rows, num_rows, inputs, panel);
  const std::vector<float> expanded = ExpandPanel(type.stored, panel, inputs);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(num_rows * inputs));
  for (int64_t n = 0; n < num_rows; ++n) {
    for (int64_t k = 0; k < inputs; ++k) {
      values.push_back(expanded[static_cast<size_t>(k / 2 * 128 + n * 2 + k % 2)]);
    }
  }
  for (int64_t n = num_rows; n < 64; ++n) {
    EXPECT_EQ(expanded[static_cast<size_t>(n * 2)], 0.0F);
  }
  return values;
}

std::vector<std::byte> BytesOfHex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// The recipe of make_quant_oracles.py.
std::vector<std::byte> RandomBlocks(const GgufType& type, uint64_t seed, int64_t num_blocks) {
  std::vector<std::byte> bytes(static_cast<size_t>(num_blocks * type.bytes + 7) / 8 * 8);
  uint64_t state = seed;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    state += 0x9e3779b97f4a7c15U;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    z ^= z >> 31;
    std::memcpy(bytes.data() + i, &z, sizeof(z));
  }
  bytes.resize(static_cast<size_t>(num_blocks * type.bytes));
  for (int64_t i = 0; i < num_blocks; ++i) {
    for (const int64_t at : {type.scale_at, type.minimum_at}) {
      // The high byte of an fp16 number holds its exponent, bits 2 to 6.
      if (at >= 0) {
        std::byte& high = bytes[static_cast<size_t>(i * type.bytes + at + 1)];
        high &= (high & std::byte{0x7c}) == std::byte{0x7c} ? std::byte{0xbf} : std::byte{0xff};
      }
    }
  }
  return bytes;
}

TEST(GgufTypesTest, ValuesAreThoseOfTheReferenceBitForBit) {
  const auto golden = GoldenTensors(std::string(kFolder) + "blocks.safetensors");
  const nlohmann::json cases = GoldenCases(std::string(kFolder) + "blocks.json");
  ASSERT_EQ(cases.size(), 10U);
  for (const nlohmann::json& one : cases) {
    const std::string name = one["name"];
    const GgufType& type = TypeOf(name);
    const std::vector<std::byte> blocks = BytesOfHex(one["blocks"]);
    const std::vector<float>& expected = golden.at(name + ".values");
    const int64_t num_blocks = static_cast<int64_t>(blocks.size()) / type.bytes;
    const int64_t num_rows = std::min<int64_t>(num_blocks, 4);
    const std::vector<float> values =
        ThroughAPanel(type, blocks, num_rows, num_blocks / num_rows * type.values);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i]))
          << name << " value " << i << ": " << values[i] << " for " << expected[i];
    }
  }
}

TEST(GgufTypesTest, ManyRandomBlocksHaveTheChecksumOfTheReference) {
  const nlohmann::json cases = GoldenCases(std::string(kFolder) + "bulk.json");
  ASSERT_EQ(cases.size(), 10U);
  for (const nlohmann::json& one : cases) {
    const GgufType& type = TypeOf(one["name"]);
    const int64_t num_rows = one["rows"];
    const int64_t inputs = one["columns"];
    const std::vector<std::byte> blocks =
        RandomBlocks(type, one["seed"], num_rows * inputs / type.values);
    const size_t panel_bytes = static_cast<size_t>(64 * inputs / type.values * type.bytes);
    Xxh3Stream checksum;
    for (size_t first = 0; first < blocks.size(); first += panel_bytes) {
      const std::vector<float> values =
          ThroughAPanel(type, std::span(blocks).subspan(first, panel_bytes), 64, inputs);
      checksum.Update(std::as_bytes(std::span(values)));
    }
    EXPECT_EQ(checksum.Digest(), std::stoull(one["values_xxh3"].get<std::string>(), nullptr, 16))
        << one["name"];
  }
}

TEST(GgufTypesTest, ScalesAndMinimumsThatAreNotFiniteAreFound) {
  for (const char* name :
       {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) {
    const GgufType& type = TypeOf(name);
    std::vector<std::byte> row = RandomBlocks(type, 7, 3);
    EXPECT_EQ(FirstNonFiniteBlock(type, row), std::nullopt) << name;
    for (const int64_t at : {type.scale_at, type.minimum_at}) {
      if (at < 0) {
        continue;
      }
      for (const uint16_t half : std::initializer_list<uint16_t>{0x7c00, 0xfc00, 0x7e01}) {
        std::vector<std::byte> broken = row;
        std::memcpy(broken.data() + type.bytes + at, &half, sizeof(half));
        EXPECT_EQ(FirstNonFiniteBlock(type, broken), 1) << name << " " << half;
      }
    }
  }
}

TEST(GgufTypesTest, TypesAreKnownByTheirNumbers) {
  EXPECT_EQ(TypeOf("Q5_0").stored, DType::kI8G32);
  EXPECT_EQ(TypeOf("Q5_1").stored, DType::kU8G32);
  EXPECT_EQ(TypeOf("Q4_K").stored, DType::kQ4K);
  EXPECT_EQ(FindGgufType(16), nullptr);
  EXPECT_EQ(GgufTypeName(14), "Q6_K");
  EXPECT_EQ(GgufTypeName(16), "IQ2_XXS");
  EXPECT_EQ(GgufTypeName(4000), "number 4000");
}

}  // namespace
}  // namespace nightshift
