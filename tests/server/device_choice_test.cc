#include "server/device_choice.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using cuda_emulator::SetMachine;

absl::StatusOr<std::string> Choose(DeviceKind kind, TierOptions& tiers, int32_t gpu = 0) {
  return ChooseDevice({.kind = kind, .gpu = gpu}, ComputeType::kBF16, 1.0, tiers);
}

TEST(DeviceChoiceTest, WithoutADriverAutoIsTheCpuAndSaysWhy) {
  SetMachine({.driver_version = 0});
  TierOptions tiers;
  ASSERT_OK_AND_ASSIGN(const std::string reason, Choose(DeviceKind::kAuto, tiers));
  EXPECT_EQ(reason.find("the CPU: count GPUs by the CUDA driver (libcuda.so.1)"), 0U) << reason;
  EXPECT_FALSE(tiers.gpu.has_value());
  EXPECT_TRUE(tiers.unified_memory());
}

TEST(DeviceChoiceTest, WithoutADriverCudaIsRefusedWithTheReason) {
  SetMachine({.driver_version = 0});
  TierOptions tiers;
  EXPECT_THAT(Choose(DeviceKind::kCuda, tiers),
              StatusIs(absl::StatusCode::kFailedPrecondition, "--device cuda: count GPUs"));
  SetMachine({});
  EXPECT_THAT(Choose(DeviceKind::kCuda, tiers, 3),
              StatusIs(absl::StatusCode::kFailedPrecondition, "use GPU 3: this machine has 1"));
  EXPECT_THAT(ChooseDevice({.kind = DeviceKind::kCuda}, ComputeType::kInt8, 1.0, tiers),
              StatusIs(absl::StatusCode::kFailedPrecondition, "compute type int8"));
  EXPECT_THAT(ChooseDevice({.kind = DeviceKind::kCuda}, ComputeType::kBF16, 0.1, tiers),
              StatusIs(absl::StatusCode::kFailedPrecondition, "sparse attention"));
}

TEST(DeviceChoiceTest, AGpuIsTakenWithMostOfItsMemoryOrWhatIsGiven) {
  SetMachine({.num_devices = 2, .device_bytes = 1000 << 20});
  TierOptions tiers;
  EXPECT_OK(Choose(DeviceKind::kAuto, tiers, 1));
  EXPECT_EQ(tiers.gpu, 1);
  EXPECT_EQ(tiers.device_budget_bytes, int64_t{850} << 20);
  tiers.device_budget_bytes = 4096;
  ASSERT_OK_AND_ASSIGN(const std::string reason, Choose(DeviceKind::kCuda, tiers));
  EXPECT_EQ(reason, "GPU 0 with 4096 bytes of its memory");
}

TEST(DeviceChoiceTest, CpuIsTheCpu) {
  SetMachine({});
  TierOptions tiers;
  EXPECT_OK(Choose(DeviceKind::kCpu, tiers));
  EXPECT_FALSE(tiers.gpu.has_value());
}

}  // namespace
}  // namespace nightshift
