#include "engine/model/stored_panel.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/convert.h"
#include "kernels/panel_layout.h"
#include "tests/support/expand_panel.h"

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
