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

}  // namespace
}  // namespace nightshift
