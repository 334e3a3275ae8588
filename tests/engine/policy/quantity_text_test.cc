#include "engine/policy/quantity_text.h"

#include "gtest/gtest.h"

namespace nightshift {
namespace {

TEST(QuantityTextTest, WritesBytesInPowersOf1024) {
  EXPECT_EQ(BytesText(4), "4 bytes");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(16.0 * (1 << 30)), "16 GiB");
  EXPECT_EQ(BytesText(-2.0 * (1 << 20)), "-2 MiB");
  EXPECT_EQ(BytesText(14.25 * (1 << 30)), "14.25 GiB");
  EXPECT_EQ(BytesText(3e18), "2.728e+06 TiB");
}

TEST(QuantityTextTest, WritesDurationsInTheUnitThatAPersonThinksIn) {
  EXPECT_EQ(DurationText(0.0023), "2.3 ms");
  EXPECT_EQ(DurationText(41.2), "41.2 s");
  EXPECT_EQ(DurationText(3599), "60 min");
  EXPECT_EQ(DurationText(217), "217 s");
  EXPECT_EQ(DurationText(3 * 3600 + 12 * 60), "3 h 12 min");
  EXPECT_EQ(DurationText(7200 - 1), "2 h 0 min");
  EXPECT_EQ(DurationText(3.5 * 24 * 3600), "3.5 days");
}

}  // namespace
}  // namespace nightshift
