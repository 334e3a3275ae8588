#include "kernels/base/checked_math.h"

#include <gtest/gtest.h>

namespace nightshift {
namespace {

constexpr int64_t kMax = INT64_MAX;

TEST(CheckedMathTest, AddsUpToTheLargestNumberAndNoFurther) {
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedAdd(INT64_MIN, -1), std::nullopt);
}

TEST(CheckedMathTest, MultipliesAnyNumberOfFactors) {
  EXPECT_EQ(CheckedMultiply({}), 1);
  EXPECT_EQ(CheckedMultiply({3, 5, 7}), 105);
  EXPECT_EQ(CheckedMultiply({kMax, 1}), kMax);
  EXPECT_EQ(CheckedMultiply({int64_t{1} << 32, int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(CheckedMultiply({int64_t{1} << 40, int64_t{1} << 40, 0}), std::nullopt);
}

TEST(CheckedMathTest, RefusesUnsignedNumbersAboveTheSignedRange) {
  EXPECT_EQ(CheckedSigned(uint64_t{INT64_MAX}), kMax);
  EXPECT_EQ(CheckedSigned(uint64_t{INT64_MAX} + 1), std::nullopt);
}

TEST(CheckedMathTest, RoundsUpUnlessTheResultDoesNotFit) {
  EXPECT_EQ(CheckedRoundUp(0, 64), 0);
  EXPECT_EQ(CheckedRoundUp(65, 64), 128);
  EXPECT_EQ(CheckedRoundUp(kMax, 64), std::nullopt);
}

}  // namespace
}  // namespace nightshift
