#include <cmath>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/device.h"
#include "tests/kernels/ops_test_support.h"
#include "tests/support/fake_clock.h"
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

TEST(CpuDeviceTest, HasOpsOfTheHostBesideItsOwn) {
  ASSERT_OK_AND_ASSIGN(const auto device, CreateCpuDevice(1));
  EXPECT_NE(&device->ops(ComputeType::kF32), &device->host_ops(ComputeType::kF32));
  EXPECT_NE(&device->ops(ComputeType::kBF16), &device->host_ops(ComputeType::kBF16));
}

std::vector<std::byte> BytesUpTo(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7);
  }
  return bytes;
}

class DiscreteCpuDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> Create(DiscreteCpuOptions options) {
    options.num_threads = 2;
    return CreateDiscreteCpuDevice(options, clock_).value();
  }
  // What `work` takes on the clock.
  template <typename Work>
  int64_t Micros(const Work& work) {
    const int64_t start_us = clock_.MonotonicMicros();
    work();
    return clock_.MonotonicMicros() - start_us;
  }

  FakeClock clock_;
};

TEST_F(DiscreteCpuDeviceTest, RefusesRatesThatAreNone) {
  const auto refuses = [&](const DiscreteCpuOptions& options, const char* message) {
    EXPECT_THAT(CreateDiscreteCpuDevice(options, clock_),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  refuses({.num_threads = -1}, "-1 threads");
  refuses({.upload_bytes_per_s = -1.0}, "upload_bytes_per_s -1");
  refuses({.download_bytes_per_s = std::nan("")}, "download_bytes_per_s nan");
  refuses({.flops_per_s = HUGE_VAL}, "flops_per_s inf");
}

TEST_F(DiscreteCpuDeviceTest, SaysThatItsMemoryIsItsOwnAndWhatIsCapped) {
  EXPECT_FALSE(Create({})->unified_memory());
  EXPECT_THAT(Create({})->description(), testing::EndsWith(", discrete"));
  const auto capped = Create({.upload_bytes_per_s = 8e9,
                              .download_bytes_per_s = 6.5e9,
                              .flops_per_s = 40e9});
  EXPECT_THAT(capped->description(),
              HasSubstr(", discrete, upload 8 GB/s, download 6.5 GB/s, matmul 40 GFLOP/s"));
}

TEST_F(DiscreteCpuDeviceTest, CopiesTakeTheTimeOfTheirDirection) {
  const auto device = Create({.upload_bytes_per_s = 1e9, .download_bytes_per_s = 0.25e9});
  const std::vector<std::byte> from = BytesUpTo(1'000'000);
  std::vector<std::byte> there(from.size());
  std::vector<std::byte> back(from.size());
  EXPECT_EQ(Micros([&] { EXPECT_OK(device->Upload(from, there)); }), 1000);
  EXPECT_EQ(Micros([&] { EXPECT_OK(device->Download(there, back)); }), 4000);
  EXPECT_EQ(back, from);
}

TEST_F(DiscreteCpuDeviceTest, WithoutCapsNothingIsWaitedFor) {
  const auto device = Create({});
  const std::vector<std::byte> from = BytesUpTo(1000);
  std::vector<std::byte> to(from.size());
  EXPECT_EQ(Micros([&] { EXPECT_OK(device->Upload(from, to)); }), 0);
  EXPECT_EQ(to, from);
  EXPECT_EQ(Micros([&] { EXPECT_OK(device->Download(from, to)); }), 0);
}

TEST_F(DiscreteCpuDeviceTest, MatMulTakesItsTimeAtTheRateAndHostOpsDoNot) {
  const auto device = Create({.flops_per_s = 1e9});
  const RandomWeight weight(DType::kF32, 128, 320, 1);
  Matrix x(320, naive::RandomValues(50 * 320, 2));
  Matrix out(50, 128);
  Matrix host_out(50, 128);
  const auto multiply = [&](Ops& ops, Matrix& product) {
    ops.MatMul({.x = x.view(), .weight = weight.Shard(64, 64), .out = product.view()});
  };
  // 2 x 50 x 320 x 64 operations.
  EXPECT_EQ(Micros([&] { multiply(device->ops(ComputeType::kF32), out); }), 2048);
  EXPECT_EQ(Micros([&] { multiply(device->host_ops(ComputeType::kF32), host_out); }), 0);
  EXPECT_EQ(out.values(), host_out.values());
}

TEST_F(DiscreteCpuDeviceTest, AttentionTakesTheTimeOfTheKeysThatItsQueriesSee) {
  const auto device = Create({.flops_per_s = 1e6});
  const KvPageLayout layout{.dtype = DType::kF32, .kv_heads = 1, .head_width = 8};
  AlignedBytes page(layout.page_bytes());
  std::vector<std::byte*> pages = {page.data()};
  Matrix k(8, naive::RandomValues(5 * 8, 1));
  Matrix q(16, naive::RandomValues(5 * 16, 2));
  Matrix mixed(5, 16);
  const AttentionSpan span{.num_rows = 5, .pages = pages};
  Ops& ops = device->ops(ComputeType::kF32);
  ops.StoreKv({.k = k.view(), .v = k.view(), .layout = layout, .spans = {&span, 1}});
  AttentionArgs args{.q = q.view(), .out = mixed.view(), .layout = layout, .num_heads = 2,
                     .spans = {&span, 1}};
  EXPECT_EQ(Micros([&] { ops.Attention(args); }), 4 * (1 + 2 + 3 + 4 + 5) * 16);
  args.window = 2;
  EXPECT_EQ(Micros([&] { ops.Attention(args); }), 4 * (1 + 2 + 2 + 2 + 2) * 16);
}

class CpuTargetNameTest : public OpsTargetTest {};

// Without this a suite over targets could test one of them four times.
TEST_P(CpuTargetNameTest, RunsOnTheForcedTarget) {
  EXPECT_THAT(CreateDevice(1)->description(), HasSubstr(TargetName(GetParam())));
}

INSTANTIATE_ON_CPU_TARGETS(CpuTargetNameTest);

}  // namespace
}  // namespace nightshift
