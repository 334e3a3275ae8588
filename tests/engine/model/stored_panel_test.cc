#include "engine/model/stored_panel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

#include "engine/model/group_quantiser.h"
#include "kernels/base/checksum.h"
#include "kernels/convert.h"
#include "kernels/panel_layout.h"
#include "tests/support/expand_panel.h"
#include "tests/support/golden.h"

namespace nightshift {
namespace {

// A type as the table of pack_format.md has it.
struct FormatCase {
  DType dtype;
  int bits;
  int64_t group;
  bool minimum;
  bool signed_codes;
};

class GroupTypeTest : public ::testing::TestWithParam<FormatCase> {
 protected:
  static constexpr size_t kOutputs = 64;

  // A panel whose codes, scales and minimums are all different from their neighbours.
  void FillPanel(size_t inputs) {
    const FormatCase& format = GetParam();
    padded_ = (inputs + 31) / 32 * 32;
    const size_t group = static_cast<size_t>(format.group);
    groups_ = (padded_ + group - 1) / group;
    code_bytes_ = padded_ * kOutputs * static_cast<size_t>(format.bits) / 8;
    panel_.resize(code_bytes_ + groups_ * kOutputs * 2 * (format.minimum ? 2 : 1));
    for (size_t i = 0; i < code_bytes_; ++i) {
      panel_[i] = static_cast<std::byte>(i * 37 + i / 64);
    }
    for (size_t i = 0; code_bytes_ + 2 * i < panel_.size(); ++i) {
      const uint16_t half = F32ToF16(0.01F * static_cast<float>(i % 300) - 1.0F);
      std::memcpy(panel_.data() + code_bytes_ + 2 * i, &half, sizeof(half));
    }
  }
  double Half(size_t plane, size_t n, size_t k) const {
    const size_t index =
        plane * groups_ * kOutputs + k / static_cast<size_t>(GetParam().group) * kOutputs + n;
    uint16_t bits = 0;
    std::memcpy(&bits, panel_.data() + code_bytes_ + 2 * index, sizeof(bits));
    return static_cast<double>(F16ToF32(bits));
  }
  double Expected(size_t n, size_t k) const {
    const FormatCase& format = GetParam();
    const size_t element = k / 2 * 128 + n * 2 + k % 2;
    double code = 0.0;
    if (format.bits == 4) {
      const int pair = std::to_integer<int>(panel_[element / 2]);
      code = (k % 2 == 0 ? pair % 16 : pair / 16) - (format.minimum ? 0 : 8);
    } else {
      const int byte = std::to_integer<int>(panel_[element]);
      code = format.signed_codes && byte > 127 ? byte - 256 : byte;
    }
    return code * Half(0, n, k) + (format.minimum ? Half(1, n, k) : 0.0);
  }

  size_t padded_ = 0;
  size_t groups_ = 0;
  size_t code_bytes_ = 0;
  std::vector<std::byte> panel_;
};

TEST_P(GroupTypeTest, PanelHasTheBytesOfTheFormat) {
  for (const int64_t inputs : {1, 31, 32, 33, 64, 96, 100, 4096}) {
    FillPanel(static_cast<size_t>(inputs));
    EXPECT_EQ(StoredPanelBytes(GetParam().dtype, inputs), static_cast<int64_t>(panel_.size()));
    EXPECT_EQ(panel_.size() % 64, 0U);
  }
}

TEST_P(GroupTypeTest, ExpandsEveryElementAndZeroesThePadding) {
  for (const size_t inputs : {size_t{5}, size_t{32}, size_t{100}, size_t{256}, size_t{570}}) {
    FillPanel(inputs);
    const std::vector<float> expanded =
        ExpandPanel(GetParam().dtype, panel_, static_cast<int64_t>(inputs));
    ASSERT_EQ(expanded.size(), padded_ * kOutputs);
    for (size_t n = 0; n < kOutputs; ++n) {
      for (size_t k = 0; k < padded_; ++k) {
        const float expected = k < inputs ? static_cast<float>(Expected(n, k)) : 0.0F;
        ASSERT_EQ(expanded[k / 2 * 128 + n * 2 + k % 2], expected) << n << " " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupTypeTest,
                         ::testing::Values(FormatCase{DType::kI8G32, 8, 32, false, true},
                                           FormatCase{DType::kI4G32, 4, 32, false, false},
                                           FormatCase{DType::kU4G32, 4, 32, true, false},
                                           FormatCase{DType::kU4G64, 4, 64, true, false},
                                           FormatCase{DType::kU8G32, 8, 32, true, false},
                                           FormatCase{DType::kU8G64, 8, 64, true, false},
                                           FormatCase{DType::kI8G64, 8, 64, false, true},
                                           FormatCase{DType::kI4G64, 4, 64, false, false}),
                         [](const auto& instance) {
                           return std::string(DTypeName(instance.param.dtype));
                         });

// The types that weights are quantised to.
constexpr DType kQuantiserTypes[] = {DType::kU4G64, DType::kI4G64, DType::kU8G64, DType::kI8G64};

// Values of rows quantised to a panel, and the panel's parts, read by pack_format.md.
struct Quantised {
  Quantised(DType dtype_in, std::vector<float> values_in, size_t rows_in, size_t inputs_in)
      : dtype(dtype_in), values(std::move(values_in)), rows(rows_in), inputs(inputs_in) {
    panel.resize(static_cast<size_t>(StoredPanelBytes(dtype, static_cast<int64_t>(inputs))));
    QuantisePanel(dtype, values, static_cast<int64_t>(rows), static_cast<int64_t>(inputs), panel);
    expanded = ExpandPanel(dtype, panel, static_cast<int64_t>(inputs));
  }
  double Half(bool is_minimum, size_t n, size_t group) const {
    const PanelPlanes planes = PlanesOf(dtype, static_cast<int64_t>(inputs));
    uint16_t bits = 0;
    std::memcpy(&bits,
                panel.data() + (is_minimum ? planes.minimums : planes.scales) +
                    static_cast<int64_t>(2 * (group * 64 + n)),
                sizeof(bits));
    return static_cast<double>(F16ToF32(bits));
  }
  double Value(size_t n, size_t k) const {
    return static_cast<double>(expanded[k / 2 * 128 + n * 2 + k % 2]);
  }
  uint8_t Code(size_t n, size_t k) const {
    const size_t element = k / 2 * 128 + n * 2 + k % 2;
    if (GroupFormatOf(dtype)->bits == 8) return std::to_integer<uint8_t>(panel[element]);
    return static_cast<uint8_t>(std::to_integer<int>(panel[element / 2]) >> (k % 2 * 4) & 15);
  }

  DType dtype;
  std::vector<float> values;
  size_t rows;
  size_t inputs;
  std::vector<std::byte> panel;
  std::vector<float> expanded;
};

template <typename T>
std::vector<T> FromHexadecimal(const nlohmann::json& text) {
  const std::string bytes = absl::HexStringToBytes(text.get<std::string>());
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

std::string HashText(std::span<const std::byte> bytes) {
  return absl::StrFormat("%016x", Xxh3(bytes));
}

TEST(GroupQuantiserTest, MakesThePanelsOfTheReference) {
  const nlohmann::json cases = GoldenCases(TEST_DATA_DIR "/groups/groups.json");
  ASSERT_EQ(cases.size(), 21U);
  for (const nlohmann::json& golden : cases) {
    const size_t rows = golden["rows"];
    const size_t inputs = golden["inputs"];
    for (const DType dtype : kQuantiserTypes) {
      SCOPED_TRACE(golden["name"].get<std::string>() + " as " + DTypeName(dtype));
      const nlohmann::json& expected = golden["types"][DTypeName(dtype)];
      const Quantised made(dtype, FromHexadecimal<float>(golden["x"]), rows, inputs);
      const std::vector<uint8_t> codes = FromHexadecimal<uint8_t>(expected["codes"]);
      const std::vector<uint16_t> scales = FromHexadecimal<uint16_t>(expected["scales"]);
      const std::vector<uint16_t> minimums = FromHexadecimal<uint16_t>(expected["minimums"]);
      const size_t groups = scales.size() / rows;
      std::vector<float> values;
      for (size_t n = 0; n < rows; ++n) {
        for (size_t group = 0; group < groups; ++group) {
          ASSERT_EQ(made.Half(false, n, group), F16ToF32(scales[n * groups + group])) << n;
          if (GroupFormatOf(dtype)->has_minimum) {
            ASSERT_EQ(made.Half(true, n, group), F16ToF32(minimums[n * groups + group])) << n;
          }
        }
        for (size_t k = 0; k < inputs; ++k) {
          ASSERT_EQ(made.Code(n, k), codes[n * inputs + k]) << n << ", " << k;
          values.push_back(static_cast<float>(made.Value(n, k)));
          const double error =
              std::abs(made.Value(n, k) - static_cast<double>(made.values[n * inputs + k]));
          ASSERT_LE(error, expected["bounds"][n][k / 64].get<double>()) << n << ", " << k;
        }
      }
      EXPECT_EQ(HashText(std::as_bytes(std::span(values))), expected["values_xxh3"]);
      EXPECT_EQ(HashText(made.panel), expected["panel_xxh3"]);
    }
  }
}

// Draws groups of every size of exponent, width and offset, with outliers and repeated values.
class GroupDraw {
 public:
  std::vector<float> Next(size_t count) {
    const int kind = std::uniform_int_distribution<int>(0, 5)(random_);
    const double centre = Magnitude();
    const double width = Magnitude();
    std::vector<float> values(count);
    for (float& value : values) {
      const double unit = std::normal_distribution<double>()(random_);
      double drawn = unit * width;
      if (kind == 1) drawn = centre + unit * width;                        // an offset of any size
      if (kind == 2) drawn = centre + unit * std::abs(centre) * 0x1p-20;   // hardly apart
      if (kind == 3) drawn = unit < 2.0 ? unit * 0x1p-30 * width : width;  // outliers
      if (kind == 4) drawn = unit < 0.0 ? centre : width;                  // two values
      if (kind == 5) drawn = std::floor(unit * 8.0) * width / 4.0;         // near ties
      value = static_cast<float>(std::clamp(drawn, -3.4e38, 3.4e38));
    }
    return values;
  }

 private:
  double Magnitude() {
    const double exponent = std::uniform_real_distribution<double>(-149.0, 127.9)(random_);
    return std::copysign(std::exp2(exponent), std::normal_distribution<double>()(random_));
  }

  std::mt19937_64 random_{20240917};
};

TEST(GroupQuantiserTest, ErrsByNoMoreThanTheProvenBound) {
  GroupDraw draw;
  for (int round = 0; round < 3000; ++round) {
    const size_t inputs = static_cast<size_t>(round % 3 == 0 ? 1 + round % 64 : 64);
    const std::vector<float> values = draw.Next(inputs);
    const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
    const double low = static_cast<double>(*low_at);
    const double high = static_cast<double>(*high_at);
    for (const DType dtype : kQuantiserTypes) {
      const GroupFormat format = *GroupFormatOf(dtype);
      const double levels = (1 << (format.has_minimum ? format.bits : format.bits - 1)) - 1;
      const double step =
          (format.has_minimum ? high - low : std::max(std::abs(low), std::abs(high))) / levels;
      const Quantised made(dtype, values, 1, inputs);
      double bound = step / 2 + levels * std::abs(made.Half(false, 0, 0) - step);
      bound += format.has_minimum ? std::abs(made.Half(true, 0, 0) - low) : 0.0;
      for (size_t k = 0; k < inputs; ++k) {
        const double value = made.Value(0, k);
        ASSERT_TRUE(std::isfinite(value));
        ASSERT_LE(std::abs(value - static_cast<double>(values[k])),
                  bound * (1 + 0x1p-40) + 0x1p-24 * std::abs(value) + 0x1p-149)
            << DTypeName(dtype) << ", round " << round << ", value " << values[k];
      }
    }
  }
}

// What was quantised once is not moved any further.
TEST(GroupQuantiserTest, KeepsValuesThatLieOnTheGrid) {
  for (const DType dtype : kQuantiserTypes) {
    const GroupFormat format = *GroupFormatOf(dtype);
    const int top = (1 << (format.has_minimum ? format.bits : format.bits - 1)) - 1;
    const int bottom = format.has_minimum ? 0 : -top;
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      const int code = i == 0 ? bottom : i == 1 ? top : bottom + i * 7 % (top - bottom + 1);
      values.push_back(static_cast<float>(code) * 0x1p-7F + (format.has_minimum ? -0.25F : 0.0F));
    }
    const Quantised made(dtype, values, 1, 64);
    for (size_t k = 0; k < values.size(); ++k) {
      EXPECT_EQ(static_cast<float>(made.Value(0, k)), values[k]) << DTypeName(dtype);
    }
  }
}

TEST(StoredPanelTest, NumbersOfTheFormatAreThoseOfTheTypes) {
  EXPECT_EQ(StoredDType(1), DType::kF32);
  EXPECT_EQ(StoredDType(18), DType::kU4G32);
  EXPECT_EQ(StoredDType(32), DType::kQ2K);
  EXPECT_EQ(StoredDType(36), DType::kQ6K);
  for (const int64_t reserved : {-1, 0, 4, 15, 24, 31, 37, 255, 256 + 1}) {
    EXPECT_FALSE(StoredDType(reserved).has_value()) << reserved;
  }
}

TEST(StoredPanelTest, SuperBlocksTakeWholeBlocksOnly) {
  EXPECT_TRUE(FitsStoredType(DType::kQ3K, 512));
  EXPECT_FALSE(FitsStoredType(DType::kQ3K, 288));
  EXPECT_TRUE(FitsStoredType(DType::kI8G32, 288));
  EXPECT_EQ(StoredPanelBytes(DType::kQ2K, 512), 2 * 64 * 84);
  EXPECT_EQ(StoredPanelBytes(DType::kQ6K, 256), 64 * 210);
}

}  // namespace
}  // namespace nightshift
