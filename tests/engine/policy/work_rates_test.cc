#include "engine/policy/work_rates.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/plain_machines.h"

namespace nightshift {
namespace {

RateCurve Always(double rate) {
  return {{{.size = 1, .rate = rate}}};
}

HardwareProfile WithMatmuls(std::vector<MatmulRate> rates) {
  HardwareProfile profile = PlainBox();
  profile.device.matmul = std::move(rates);
  return profile;
}

TEST(WorkRatesTest, MatmulRatesBetweenTwoWidthsAreInterpolatedOverTheLogarithm) {
  const HardwareProfile profile = WithMatmuls({{.inputs = 4096, .flops = Always(4e11)},
                                               {.inputs = 256, .flops = Always(2e11)},
                                               {.inputs = 64, .flops = Always(1e10)}});
  const WorkRates rates(profile, ComputeType::kBF16);
  const auto rate_at = [&](int64_t inputs) {
    return 1e12 / rates.MatmulSeconds(DType::kBF16, inputs, 1e12, 8.0);
  };
  EXPECT_NEAR(rate_at(1024), 3e11, 1.0);
  EXPECT_NEAR(rate_at(512), 2.5e11, 1.0);
  EXPECT_NEAR(rate_at(4096), 4e11, 1.0);
  EXPECT_NEAR(rate_at(256), 2e11, 1.0);
  // Beyond the ends it stays.
  EXPECT_NEAR(rate_at(16384), 4e11, 1.0);
  EXPECT_NEAR(rate_at(16), 1e10, 1.0);
}

// What was not measured is expanded first.
TEST(WorkRatesTest, PackedKeysAreAttendedToAsMeasuredOrElseExpandedFirst) {
  HardwareProfile profile = PlainBox();
  profile.device.decode_attention = {{.head_width = 128, .bytes = Always(20e9)},
                                     {.kv = DType::kU4G64, .head_width = 64, .bytes = Always(9e9)}};
  profile.device.unpack = {{.dtype = DType::kU8G64, .elements_per_s = 4e9}};
  const WorkRates rates(profile, ComputeType::kBF16);
  const auto seconds = [&](DType kv) {
    return rates.DecodeAttentionSeconds(
        {.head_width = 128, .kv = kv, .elements = 16e9, .positions = 100.0});
  };
  EXPECT_NEAR(seconds(DType::kBF16), 32.0 / 20.0, 1e-9);
  EXPECT_NEAR(seconds(DType::kU4G64), 9.0 / 9.0, 1e-9);
  EXPECT_NEAR(seconds(DType::kU8G64), 17.0 / 20.0 + 4.0, 1e-9);
  EXPECT_TRUE(rates.AttendsTo(DType::kU4G64, true));
  EXPECT_FALSE(rates.AttendsTo(DType::kU8G64, false));
}

TEST(WorkRatesTest, AnotherComputeTypeIsTheLastThatAMatmulIsTakenFrom) {
  const HardwareProfile profile =
      WithMatmuls({{.compute = ComputeType::kF32, .weights = DType::kBF16, .flops = Always(1e11)},
                   {.compute = ComputeType::kBF16,
                    .weights = DType::kF16,
                    .inputs = 64,
                    .flops = Always(2e11)}});
  const WorkRates rates(profile, ComputeType::kBF16);
  EXPECT_NEAR(1e12 / rates.MatmulSeconds(DType::kBF16, 4096, 1e12, 8.0), 2e11, 1.0);
}

TEST(WorkRatesTest, ProductsOfBytesAreOfGroupsAlone) {
  HardwareProfile profile =
      WithMatmuls({{.compute = ComputeType::kF32, .weights = DType::kU4G64, .flops = Always(1e11)},
                   {.weights = DType::kBF16, .flops = Always(4e11)},
                   {.weights = DType::kU4G64, .flops = Always(3e11)}});
  const auto rate_of = [&](DType dtype) {
    return 1e12 / WorkRates(profile, ComputeType::kInt8).MatmulSeconds(dtype, 4096, 1e12, 8.0);
  };
  EXPECT_NEAR(rate_of(DType::kU4G64), 3e11, 1.0) << "of floats, where bytes were not measured";
  profile.device.matmul.push_back(
      {.compute = ComputeType::kInt8, .weights = DType::kU4G64, .flops = Always(6e11)});
  EXPECT_NEAR(rate_of(DType::kU4G64), 6e11, 1.0);
  EXPECT_NEAR(rate_of(DType::kBF16), 4e11, 1.0);
}

TEST(WorkRatesTest, GroupsAreTakenFromGroupsOfAsManyBitsBeforeFloats) {
  const HardwareProfile profile = WithMatmuls({{.weights = DType::kBF16, .flops = Always(4e11)},
                                               {.weights = DType::kU4G64, .flops = Always(3e11)},
                                               {.weights = DType::kI8G64, .flops = Always(2e11)}});
  const WorkRates rates(profile, ComputeType::kBF16);
  const auto rate_of = [&](DType dtype) {
    return 1e12 / rates.MatmulSeconds(dtype, 4096, 1e12, 8.0);
  };
  EXPECT_NEAR(rate_of(DType::kU4G64), 3e11, 1.0);
  EXPECT_NEAR(rate_of(DType::kI4G32), 3e11, 1.0);
  EXPECT_NEAR(rate_of(DType::kU8G32), 2e11, 1.0);
  EXPECT_NEAR(rate_of(DType::kF16), 4e11, 1.0);
}

// A machine that was measured before groups were multiplied, or that is known by figures alone.
TEST(WorkRatesTest, GroupsThatNoMatmulTakesAreUnpackedForEach) {
  const HardwareProfile profile = WithMatmuls({{.weights = DType::kBF16, .flops = Always(4e11)}});
  const WorkRates rates(profile, ComputeType::kBF16);
  const double elements = 1e9;
  for (const double rows : {1.0, 64.0}) {
    EXPECT_NEAR(rates.MatmulSeconds(DType::kU4G64, 4096, 2 * elements * rows, rows),
                rates.MatmulSeconds(DType::kBF16, 4096, 2 * elements * rows, rows) +
                    rates.UnpackSeconds(DType::kU4G64, elements),
                1e-12);
  }
}

}  // namespace
}  // namespace nightshift
