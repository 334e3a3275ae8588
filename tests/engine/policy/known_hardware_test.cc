#include "engine/policy/known_hardware.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

TEST(KnownHardwareTest, IsValidAndSaysItsSourceAndAssumptions) {
  std::set<std::string> names;
  for (const std::string& name : KnownHardwareNames()) {
    ASSERT_OK_AND_ASSIGN(const HardwareProfile profile, KnownHardware(name));
    EXPECT_OK(ValidateHardwareProfile(profile)) << name;
    EXPECT_EQ(profile.name, name);
    EXPECT_EQ(profile.fingerprint, "");
    EXPECT_THAT(profile.source, HasSubstr("ssumed")) << name;
    EXPECT_OK(HardwareProfileFromJson(HardwareProfileToJson(profile))) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  for (const char* name : {"t4", "a10g", "a100", "rtx-3090", "rtx-4090", "h100", "h200",
                           "desktop-avx2", "desktop-avx512"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

TEST(KnownHardwareTest, ListsTheNamesForAWrongOne) {
  EXPECT_THAT(KnownHardware("t5"), StatusIs(absl::StatusCode::kNotFound, "t4-attention-30"));
}

// Figures of the released cost model for the paper's machine.
TEST(KnownHardwareTest, HasThePapersMachine) {
  const HardwareProfile t4 = KnownHardware("t4").value();
  EXPECT_FALSE(t4.unified_memory);
  EXPECT_NEAR(t4.upload.At(1 << 20), 12.89 * kGiB, 1);
  EXPECT_NEAR(t4.disk_read.At(4 << 20), 2.0 * kGiB, 1);
  EXPECT_DOUBLE_EQ(t4.disk_write.At(4 << 20), 1e9);
  EXPECT_DOUBLE_EQ(t4.device.matmul[0].flops.At(4096), 21.24e12);
  EXPECT_DOUBLE_EQ(t4.device.matmul[0].flops.At(64), 4.3e12);
  EXPECT_DOUBLE_EQ(t4.device.prompt_attention[1].flops.At(512), 9.97e12);
  EXPECT_DOUBLE_EQ(t4.device.decode_attention[3].bytes.At(512), 79e9);
  EXPECT_DOUBLE_EQ(t4.host.decode_attention[3].bytes.At(512), 12.3e9);
}

TEST(KnownHardwareTest, VariesTheDiskAndTheHostsAttentionOfThePapersMachine) {
  const HardwareProfile t4 = KnownHardware("t4").value();
  HardwareProfile variant = KnownHardware("t4-disk-2.65-attention-60").value();
  EXPECT_NEAR(variant.disk_read.At(4 << 20), 2.65 * kGiB, 1);
  EXPECT_DOUBLE_EQ(variant.host.decode_attention[3].bytes.At(512), 60e9);
  variant.name = t4.name;
  variant.source = t4.source;
  variant.disk_read = t4.disk_read;
  variant.host.decode_attention = t4.host.decode_attention;
  EXPECT_EQ(HardwareProfileToJson(variant), HardwareProfileToJson(t4));
  EXPECT_NEAR(KnownHardware("t4-attention-30")->host.decode_attention[3].bytes.At(1), 30e9, 1);
}

// No rate is above the peaks of the data sheets.
TEST(KnownHardwareTest, StaysBelowThePublishedPeaks) {
  const HardwareProfile h100 = KnownHardware("h100").value();
  for (const MatmulRate& rate : h100.device.matmul) {
    for (const RatePoint& point : rate.flops.points) {
      EXPECT_LT(point.rate, rate.compute == ComputeType::kBF16 ? 989.4e12 : 66.9e12);
    }
  }
  EXPECT_LT(h100.device.memory_bytes_per_s, 3350e9);
  EXPECT_LT(h100.upload.At(1 << 20), 63e9);
  EXPECT_LT(h100.device_bytes, int64_t{80'000'000'000} * 11 / 10);
}

}  // namespace
}  // namespace nightshift
