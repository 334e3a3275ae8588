#include "server/scheduling/sweep_rate.h"

#include <gtest/gtest.h>

namespace nightshift {
namespace {

TEST(SweepRateTest, IsUnknownUntilTwoSweepsHaveEnded) {
  SweepRate rate;
  EXPECT_EQ(rate.tokens_per_second(), 0);
  rate.Add(1'000'000, 500);
  EXPECT_EQ(rate.tokens_per_second(), 0);
}

TEST(SweepRateTest, CountsTheTokensOfTheSweepsInItsInterval) {
  SweepRate rate;
  rate.Add(1'000'000, 500);
  rate.Add(2'000'000, 10);
  rate.Add(3'000'000, 30);
  EXPECT_DOUBLE_EQ(rate.tokens_per_second(), 20);
}

TEST(SweepRateTest, ForgetsOldSweeps) {
  SweepRate rate;
  for (int64_t i = 0; i < 100; ++i) {
    rate.Add(i * 1'000'000, 1000);
  }
  for (int64_t i = 100; i < 200; ++i) {
    rate.Add(i * 1'000'000, 7);
  }
  EXPECT_DOUBLE_EQ(rate.tokens_per_second(), 7);
}

}  // namespace
}  // namespace nightshift
