#include <gmock/gmock.h>

#include "kernels/device.h"
#include "tests/kernels/cpu_ops_test_support.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using testing::HasSubstr;

TEST(CpuDeviceTest, RefusesANegativeThreadCount) {
  EXPECT_THAT(CreateCpuDevice(-3), StatusIs(absl::StatusCode::kInvalidArgument, "-3 threads"));
}

TEST(CpuDeviceTest, ComputesOnHostMemoryWithOneThreadACoreByDefault) {
  ASSERT_OK_AND_ASSIGN(const auto device, CreateCpuDevice(0));
  EXPECT_TRUE(device->unified_memory());
  EXPECT_THAT(device->description(), HasSubstr("cpu, "));
  ASSERT_OK_AND_ASSIGN(const auto three, CreateCpuDevice(3));
  EXPECT_THAT(three->description(), HasSubstr("3 threads"));
}

TEST(CpuDeviceTest, HasApartOpsForEachComputeType) {
  ASSERT_OK_AND_ASSIGN(const auto device, CreateCpuDevice(1));
  EXPECT_NE(&device->ops(ComputeType::kF32), &device->ops(ComputeType::kBF16));
  EXPECT_EQ(&device->ops(ComputeType::kF32), &device->ops(ComputeType::kF32));
}

class CpuTargetNameTest : public CpuTargetTest {};

// Without this a suite over targets could test one of them four times.
TEST_P(CpuTargetNameTest, RunsOnTheForcedTarget) {
  EXPECT_THAT(CreateDevice(1)->description(), HasSubstr(CpuTargetName(GetParam())));
}

INSTANTIATE_ON_CPU_TARGETS(CpuTargetNameTest);

}  // namespace
}  // namespace nightshift
