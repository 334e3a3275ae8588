#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/ops_test_support.h"

namespace nightshift {
namespace {

// The value of 16 bits by the definition of the format, in double.
double ValueOf(DType dtype, uint16_t bits) {
  const int mantissa_bits = dtype == DType::kF16 ? 10 : 7;
  const int bias = dtype == DType::kF16 ? 15 : 127;
  const int exponent_field = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent_field == 2 * bias + 1) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent_field == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent_field - bias - mantissa_bits);
}

uint16_t InfinityOf(DType dtype) {
  return dtype == DType::kF16 ? 0x7c00 : 0x7f80;
}

std::vector<uint16_t> Round(DType dtype, const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  RoundFromF32(values.data(), static_cast<int64_t>(values.size()), dtype,
               reinterpret_cast<std::byte*>(bits.data()));
  return bits;
}

class ConvertTest : public OpsTargetTest {};
constexpr DType kTypes[] = {DType::kF16, DType::kBF16};

TEST_P(ConvertTest, WidensEveryValueExactly) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<uint16_t>(i);
  }
  std::vector<float> values(bits.size());
  for (const DType dtype : kTypes) {
    WidenToF32(dtype, reinterpret_cast<const std::byte*>(bits.data()), 65536, values.data());
    for (size_t i = 0; i < bits.size(); ++i) {
      const double expected = ValueOf(dtype, bits[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[i])) << DTypeName(dtype) << " " << i;
      } else {
        ASSERT_EQ(static_cast<double>(values[i]), expected) << DTypeName(dtype) << " " << i;
        ASSERT_EQ(std::signbit(values[i]), (i & 0x8000) != 0);
      }
    }
  }
}

// All borders between neighbours: the middle goes to the even one, its f32 neighbours outwards.
TEST_P(ConvertTest, RoundsToTheNearestWithTiesToEven) {
  for (const DType dtype : kTypes) {
    std::vector<float> values;
    std::vector<uint16_t> expected;
    for (uint16_t low = 0; low + 1 < InfinityOf(dtype); ++low) {
      const auto high = static_cast<uint16_t>(low + 1);
      const auto middle = static_cast<float>((ValueOf(dtype, low) + ValueOf(dtype, high)) / 2.0);
      const uint16_t even = low % 2 == 0 ? low : high;
      values.insert(values.end(),
                    {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, INFINITY),
                     -middle, static_cast<float>(ValueOf(dtype, low))});
      expected.insert(expected.end(), {even, low, high, static_cast<uint16_t>(even | 0x8000), low});
    }
    const std::vector<uint16_t> rounded = Round(dtype, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i], expected[i]) << DTypeName(dtype) << " of " << values[i];
    }
  }
}

TEST_P(ConvertTest, KeepsInfinitiesAndNaNsAndOverflowsToInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto small_nan = std::bit_cast<float>(0x7f800001U);  // its bits fall away in 16
  const auto wide_nan = std::bit_cast<float>(0xffffffffU);   // must not carry into the sign
  for (const DType dtype : kTypes) {
    std::vector<float> values;
    for (int i = 0; i < 5; ++i) {  // in whole vectors and in the rest
      values.insert(values.end(), {INFINITY, -INFINITY, nan, small_nan, wide_nan,
                                   std::numeric_limits<float>::max()});
    }
    const std::vector<uint16_t> rounded = Round(dtype, values);
    for (size_t i = 0; i < values.size(); i += 6) {
      EXPECT_EQ(rounded[i], InfinityOf(dtype));
      EXPECT_EQ(rounded[i + 1], InfinityOf(dtype) | 0x8000);
      EXPECT_TRUE(std::isnan(ValueOf(dtype, rounded[i + 2])));
      EXPECT_TRUE(std::isnan(ValueOf(dtype, rounded[i + 3])));
      EXPECT_TRUE(std::isnan(ValueOf(dtype, rounded[i + 4])));
      EXPECT_EQ(rounded[i + 5], InfinityOf(dtype));
    }
  }
  const std::vector<float> at_border = {65519.996F, 65520.0F};
  EXPECT_EQ(Round(DType::kF16, at_border), (std::vector<uint16_t>{0x7bff, 0x7c00}));
}

TEST_P(ConvertTest, BulkAndSingleConversionsAgree) {
  uint32_t state = 1;
  std::vector<float> values;
  for (int i = 0; i < 100003; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(std::bit_cast<float>(state));
  }
  const std::vector<uint16_t> f16 = Round(DType::kF16, values);
  const std::vector<uint16_t> bf16 = Round(DType::kBF16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    ASSERT_EQ(f16[i], F32ToF16(values[i])) << values[i];
    ASSERT_EQ(bf16[i], F32ToBF16(values[i])) << values[i];
  }
}

TEST_P(ConvertTest, WorksAtAnyAddressAndWritesNoMoreThanTold) {
  for (const DType dtype : kTypes) {
    for (const int64_t count : {0, 1, 7, 16, 33}) {
      const std::vector<float> values = naive::RandomValues(count, 1);
      std::vector<std::byte> bytes(static_cast<size_t>(2 * count + 2), std::byte{0x5a});
      RoundFromF32(values.data(), count, dtype, bytes.data() + 1);
      EXPECT_EQ(bytes.front(), std::byte{0x5a});
      EXPECT_EQ(bytes.back(), std::byte{0x5a});
      std::vector<float> widened(static_cast<size_t>(count + 1), 9.0F);
      WidenToF32(dtype, bytes.data() + 1, count, widened.data());
      EXPECT_EQ(widened.back(), 9.0F);
      widened.pop_back();
      EXPECT_EQ(widened, naive::RoundTo(dtype, values));
    }
  }
}

INSTANTIATE_ON_CPU_TARGETS(ConvertTest);

}  // namespace
}  // namespace nightshift
