#include "engine/policy/flexgen_rates.h"

#include "engine/model/known_shapes.h"
#include "engine/policy/known_hardware.h"
#include "tests/support/status_matchers.h"

#include "gtest/gtest.h"

namespace nightshift {
namespace {

FlexGenShape ShapeOf(const char* name) {
  return FlexGenShapeOf(FindKnownShape(name)->config).value();
}

TEST(FlexGenRatesTest, ThePapersMachineHasTheRatesThatFlexGenShips) {
  const HardwareProfile t4 = KnownHardware("t4").value();
  const FlexGenRates rates = FlexGenRatesOf(t4, ShapeOf("opt-30b"), 512);
  const FlexGenRates shipped = ShippedFlexGenRates();
  EXPECT_NEAR(rates.upload, shipped.upload, 1);
  EXPECT_EQ(rates.prompt_matmul, shipped.prompt_matmul);
  EXPECT_EQ(rates.decode_matmul, shipped.decode_matmul);
  EXPECT_EQ(rates.decode_attention, shipped.decode_attention);
  EXPECT_EQ(rates.host_attention, shipped.host_attention);
}

// A query sees half of the pairs that FlexGen counts.
TEST(FlexGenRatesTest, PromptAttentionCountsAllPairs) {
  const HardwareProfile t4 = KnownHardware("t4").value();
  const FlexGenRates rates = FlexGenRatesOf(t4, ShapeOf("opt-30b"), 512);
  for (const PromptAttentionRate& rate : t4.device.prompt_attention) {
    if (rate.compute == ComputeType::kBF16 && rate.head_width == 128) {
      EXPECT_EQ(rates.prompt_attention, 2 * rate.flops.At(512));
    }
  }
}

TEST(FlexGenRatesTest, WithOneMemoryNothingIsCopied) {
  const HardwareProfile desktop = KnownHardware("desktop-avx512").value();
  ASSERT_TRUE(desktop.unified_memory);
  const FlexGenRates rates = FlexGenRatesOf(desktop, ShapeOf("llama-3-8b"), 512);
  EXPECT_GE(rates.upload, 1e18);
  EXPECT_GE(rates.download_kv, 1e18);
  EXPECT_EQ(rates.host_attention, rates.decode_attention);
  EXPECT_EQ(TierBytesOf(desktop)[0], static_cast<double>(desktop.host_bytes));
}

TEST(FlexGenRatesTest, AnEmptyProfileGivesRatesThatDivide) {
  FlexGenOptions options{.shape = ShapeOf("opt-30b"),
                         .prompt_tokens = 512,
                         .output_tokens = 32,
                         .rates = FlexGenRatesOf({}, ShapeOf("opt-30b"), 512),
                         .tier_bytes = TierBytesOf({})};
  EXPECT_OK(FlexGenCost::Create(options));
}

}  // namespace
}  // namespace nightshift
