// The CUDA device on the emulator: what it refuses, copies, faults, and products of floats.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/status/status.h"

#include "kernels/device.h"
#include "tests/kernels/ops_test_support.h"
#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/naive_ops.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using cuda_emulator::Fault;
using cuda_emulator::SetMachine;

constexpr int64_t kMiB = int64_t{1} << 20;

std::unique_ptr<Device> Create(ComputeType compute_type, int64_t memory_bytes = 8 * kMiB) {
  auto device = CreateCudaDevice(
      {.compute_type = compute_type, .memory_bytes = memory_bytes, .num_threads = 1});
  EXPECT_OK(device.status());
  return std::move(device).value();
}

std::vector<std::byte> Pattern(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  return bytes;
}

TEST(CudaRefusalTest, SaysWhatIsNotThere) {
  const auto create = [](const CudaOptions& options) { return CreateCudaDevice(options).status(); };
  const CudaOptions plain = {.memory_bytes = kMiB};
  constexpr auto kMissing = absl::StatusCode::kFailedPrecondition;
  SetMachine({.driver_version = 0});
  EXPECT_THAT(create(plain), StatusIs(kMissing, "driver (libcuda.so.1), which is not there"));
  SetMachine({.driver_version = 12040, .num_devices = 0});
  EXPECT_THAT(create(plain), StatusIs(kMissing, "which is of CUDA 12.4: cudaErrorNoDevice"));
  SetMachine({.num_devices = 2});
  EXPECT_THAT(create({.gpu = 2, .memory_bytes = kMiB}),
              StatusIs(kMissing, "use GPU 2: this machine has 2 (0: Emulated GPU 0, compute "
                                 "capability 9.0, 0.2 GiB; 1: Emulated GPU 1"));
  EXPECT_THAT(GpuMemoryBytes(-1), StatusIs(kMissing, "use GPU -1"));
  SetMachine({.major = 7, .minor = 0});
  EXPECT_THAT(create(plain), StatusIs(kMissing, "the least compute capability is 7.5"));
  SetMachine({});
  EXPECT_THAT(create({.compute_type = ComputeType::kInt8, .memory_bytes = kMiB}),
              StatusIs(kMissing, "compute type int8"));
  EXPECT_THAT(create({}), StatusIs(absl::StatusCode::kInvalidArgument, "with 0 bytes of memory"));
  EXPECT_EQ(cuda_emulator::AllocatedBytes(), 0U);
}

TEST(CudaRefusalTest, EachRefusedReservationIsNamedAndLeavesNothing) {
  SetMachine({});
  EXPECT_THAT(CreateCudaDevice({.memory_bytes = int64_t{1} << 40}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "bytes of device memory for the engine (free "));
  int64_t refused = 0;
  for (bool is_created = false; !is_created; ++refused) {
    cuda_emulator::FailCall(Fault::kAllocation, refused + 1);
    const auto device = CreateCudaDevice({.memory_bytes = kMiB, .num_threads = 1});
    is_created = device.ok();
    if (!is_created) {
      EXPECT_THAT(device, StatusIs(absl::StatusCode::kResourceExhausted, "device memory"));
      EXPECT_EQ(cuda_emulator::AllocatedBytes(), 0U);
    }
  }
  EXPECT_GE(refused, 5);
  cuda_emulator::FailCall(Fault::kRegistration, 1);
  EXPECT_THAT(CreateCudaDevice({.memory_bytes = kMiB}),
              StatusIs(absl::StatusCode::kResourceExhausted, "pin"));
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    SetMachine({});
    device_ = Create(ComputeType::kF32);
  }
  // Fills device memory with bytes and reads them back.
  void ExpectRoundTrip(std::span<const std::byte> from, std::span<std::byte> back) {
    ASSERT_OK_AND_ASSIGN(const auto part, device_->arena()->Take(static_cast<int64_t>(from.size())));
    ASSERT_OK(device_->Upload(from, part.first(from.size())));
    ASSERT_OK(device_->Download(part.first(from.size()), back));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), back.begin()));
    device_->arena()->GiveBack(part);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_FALSE(device_->unified_memory());
  EXPECT_NE(device_->description().find("cuda 0, Emulated GPU 0, compute capability 9.0"),
            std::string::npos);
  EXPECT_NE(device_->description().find("beside it cpu, 1 thread"), std::string::npos);
  EXPECT_EQ(device_->workers().num_threads(), 1);
}

TEST_F(CudaDeviceTest, CopiesMemoryThatIsPinnedOrNot) {
  // Not whole stages of the lane's own memory.
  for (const size_t count : {size_t{1}, size_t{4096}, size_t{5 * kMiB + 3}}) {
    const std::vector<std::byte> from = Pattern(count);
    std::vector<std::byte> back(count);
    ExpectRoundTrip(from, back);
    AlignedBytes pinned(static_cast<int64_t>(2 * count));
    const std::span<std::byte> memory(pinned.data(), 2 * count);
    std::copy(from.begin(), from.end(), memory.begin());
    device_->Pin(memory);
    ExpectRoundTrip(memory.first(count), memory.subspan(count));
    device_->Unpin(memory);
  }
}

TEST_F(CudaDeviceTest, WhatCannotBePinnedIsCopiedAllTheSame) {
  AlignedBytes memory(4096);
  const std::span<std::byte> bytes(memory.data(), 4096);
  cuda_emulator::FailCall(Fault::kRegistration, 1);
  device_->Pin(bytes);
  std::vector<std::byte> back(4096);
  ExpectRoundTrip(bytes, back);
  device_->Unpin(bytes);
}

TEST_F(CudaDeviceTest, ItsArenaIsZeros) {
  ASSERT_OK_AND_ASSIGN(const auto part, device_->arena()->Take(8192));
  std::vector<std::byte> back = Pattern(8192);
  EXPECT_OK(device_->Download(part, back));
  EXPECT_EQ(back, std::vector<std::byte>(8192));
  device_->arena()->GiveBack(part);
}

TEST_F(CudaDeviceTest, AFaultNamesItsStepAndStays) {
  ASSERT_OK_AND_ASSIGN(const auto part, device_->arena()->Take(4096));
  const std::vector<std::byte> from = Pattern(4096);
  cuda_emulator::FailCall(Fault::kCopy, 1);
  EXPECT_THAT(device_->Upload(from, part),
              StatusIs(absl::StatusCode::kInternal,
                       "GPU 0: upload of 4096 bytes: cudaErrorECCUncorrectable"));
  EXPECT_THAT(device_->Wait(), StatusIs(absl::StatusCode::kInternal, "upload of 4096 bytes"));
}

TEST_F(CudaDeviceTest, ALaunchThatIsRefusedIsTheAnswerOfTheWait) {
  ASSERT_OK_AND_ASSIGN(const auto part, device_->arena()->Take(4096));
  const MatrixView x{reinterpret_cast<float*>(part.data()), 4, 16, 16};
  device_->ops(ComputeType::kF32).Scale(2.0F, x);
  EXPECT_OK(device_->Wait());
  cuda_emulator::FailCall(Fault::kLaunch, 1);
  device_->ops(ComputeType::kF32).Scale(2.0F, x);
  EXPECT_THAT(device_->Wait(), StatusIs(absl::StatusCode::kInternal, "GPU 0: Scale"));
  EXPECT_THAT(device_->Wait(), StatusIs(absl::StatusCode::kInternal, "GPU 0: Scale"));
}

TEST_F(CudaDeviceTest, AFaultOfAKernelIsTheAnswerOfTheWaitAndOfCopies) {
  ASSERT_OK_AND_ASSIGN(const auto part, device_->arena()->Take(4096));
  cuda_emulator::FailCall(Fault::kKernel, 1);
  device_->ops(ComputeType::kF32)
      .Scale(2.0F, {reinterpret_cast<float*>(part.data()), 4, 16, 16});
  EXPECT_THAT(device_->Wait(),
              StatusIs(absl::StatusCode::kInternal, "GPU 0: ops: cudaErrorIllegalAddress"));
  std::vector<std::byte> back(4096);
  EXPECT_THAT(device_->Download(part, back),
              StatusIs(absl::StatusCode::kInternal, "cudaErrorIllegalAddress"));
}

using CudaDeviceDeathTest = CudaDeviceTest;

TEST_F(CudaDeviceDeathTest, AnUploadToWhatOpsUseNeedsAWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_OK_AND_ASSIGN(const auto part, device_->arena()->Take(4096));
  const MatrixView x{reinterpret_cast<float*>(part.data()), 4, 16, 16};
  const std::vector<std::byte> from = Pattern(16);
  const auto upload_behind_op = [&] {
    device_->ops(ComputeType::kF32).Scale(2.0F, x);
    device_->Upload(from, part.first(16)).IgnoreError();
  };
  EXPECT_DEATH(upload_behind_op(), "no fence between \"Scale\" .* and \"copy to the device\"");
  device_->ops(ComputeType::kF32).Scale(2.0F, x);
  EXPECT_OK(device_->Wait());
  EXPECT_OK(device_->Upload(from, part.first(16)));
}

// --- Products of floats.

struct Types {
  ComputeType compute;
  DType weight;
  int capability;
};

// Multiplies on the device what lies on the host.
class FloatProduct {
 public:
  explicit FloatProduct(const Types& types) : types_(types) {
    SetMachine({.major = types.capability / 10, .minor = types.capability % 10});
    device_ = Create(types.compute, 32 * kMiB);
  }

  std::vector<float> Multiply(const RandomWeight& weight, const std::vector<float>& x) {
    return Multiply(weight, x, {}, {});
  }
  // `bias` may be empty; so may `before`, which is added to.
  std::vector<float> Multiply(const RandomWeight& weight, const std::vector<float>& x,
                              const std::vector<float>& bias, const std::vector<float>& before) {
    const auto rows = static_cast<int64_t>(x.size()) / weight.inputs;
    WeightShardView shard = weight.shard();
    const size_t bytes = static_cast<size_t>(shard.panels() *
                                             PanelBytes(weight.dtype, weight.inputs));
    shard.data = Put({weight.packed.data(), bytes}).data();
    EXPECT_OK(device_->UnpackShard(shard));
    std::vector<float> out = before;
    out.resize(static_cast<size_t>(rows * weight.outputs), 7.0F);
    const std::span<std::byte> device_out = Put(std::as_bytes(std::span(out)));
    device_->ops(types_.compute)
        .MatMul({.x = {FloatsOf(Put(std::as_bytes(std::span(x)))), rows, weight.inputs,
                       weight.inputs},
                 .weight = shard,
                 .bias = bias.empty() ? nullptr : FloatsOf(Put(std::as_bytes(std::span(bias)))),
                 .out = {FloatsOf(device_out), rows, weight.outputs, weight.outputs},
                 .accumulate = !before.empty()});
    EXPECT_OK(device_->Wait());
    EXPECT_OK(device_->Download(device_out.first(out.size() * sizeof(float)),
                                std::as_writable_bytes(std::span(out))));
    for (const std::span<std::byte> part : parts_) {
      device_->arena()->GiveBack(part);
    }
    parts_.clear();
    return out;
  }

 private:
  static float* FloatsOf(std::span<std::byte> bytes) {
    return reinterpret_cast<float*>(bytes.data());
  }
  std::span<std::byte> Put(std::span<const std::byte> bytes) {
    parts_.push_back(device_->arena()->Take(static_cast<int64_t>(bytes.size())).value());
    EXPECT_OK(device_->Upload(bytes, parts_.back().first(bytes.size())));
    return parts_.back();
  }

  Types types_;
  std::unique_ptr<Device> device_;
  std::vector<std::span<std::byte>> parts_;
};

class FloatProductTest : public testing::TestWithParam<Types> {
 protected:
  naive::Result Expected(const RandomWeight& weight, std::vector<float> x,
                         const std::vector<float>& bias) const {
    std::vector<float> values = weight.values;
    if (GetParam().compute == ComputeType::kBF16) {
      x = naive::RoundTo(DType::kBF16, x);
      values = naive::RoundTo(DType::kBF16, values);
    }
    return naive::MatMul(x, values, bias, weight.outputs, weight.inputs);
  }
};

TEST_P(FloatProductTest, AgreesWithTheOracleForEachShape) {
  FloatProduct product(GetParam());
  for (const int64_t rows : {1, 5, 130}) {
    for (const int64_t outputs : {1, 64, 65, 200}) {
      for (const int64_t inputs : {1, 31, 33, 100}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(outputs) + "x" +
                     std::to_string(inputs));
        const RandomWeight weight(GetParam().weight, outputs, inputs, 1);
        const std::vector<float> x = naive::RandomValues(rows * inputs, 2);
        const std::vector<float> bias = naive::RandomValues(outputs, 3);
        ExpectWithin(product.Multiply(weight, x, bias, {}), Expected(weight, x, bias));
      }
    }
  }
}

TEST_P(FloatProductTest, AddsToWhatIsThere) {
  FloatProduct product(GetParam());
  const RandomWeight weight(GetParam().weight, 70, 50, 1);
  const std::vector<float> x = naive::RandomValues(3 * 50, 2);
  const std::vector<float> before = naive::RandomValues(3 * 70, 4);
  naive::Result expected = Expected(weight, x, {});
  for (size_t i = 0; i < before.size(); ++i) {
    expected.values[i] += static_cast<double>(before[i]);
    expected.tolerances[i] += 2.0 * naive::kF32Rounding;
  }
  ExpectWithin(product.Multiply(weight, x, {}, before), expected);
}

TEST_P(FloatProductTest, GivesARowTheSameBitsAloneAndAtEveryPosition) {
  FloatProduct product(GetParam());
  const RandomWeight weight(GetParam().weight, 80, 170, 3);
  const std::vector<float> row = naive::RandomValues(weight.inputs, 4);
  const auto alone = BitsOf(product.Multiply(weight, row));
  for (const int64_t rows : {7, 64, 513}) {
    std::vector<float> x;
    for (int64_t i = 0; i < rows; ++i) {
      x.insert(x.end(), row.begin(), row.end());
    }
    const auto together = BitsOf(product.Multiply(weight, x));
    for (size_t i = 0; i < together.size(); ++i) {
      ASSERT_EQ(together[i], alone[i % alone.size()]) << rows << " rows, element " << i;
    }
  }
}

TEST_P(FloatProductTest, GivesTheSameBitsAmongOtherRows) {
  FloatProduct product(GetParam());
  const RandomWeight weight(GetParam().weight, 65, 90, 5);
  const std::vector<float> x = naive::RandomValues(150 * weight.inputs, 6);
  const auto together = BitsOf(product.Multiply(weight, x));
  for (const int64_t row : {0, 100, 149}) {
    const auto first = x.begin() + row * weight.inputs;
    const auto alone =
        BitsOf(product.Multiply(weight, std::vector<float>(first, first + weight.inputs)));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + row * weight.outputs));
  }
}

std::string TypesName(const testing::TestParamInfo<Types>& info) {
  return std::string(ComputeTypeName(info.param.compute)) + "_" + DTypeName(info.param.weight) +
         "_" + std::to_string(info.param.capability);
}

INSTANTIATE_TEST_SUITE_P(
    Types, FloatProductTest,
    testing::Values(Types{ComputeType::kF32, DType::kF32, 90},
                    Types{ComputeType::kF32, DType::kF16, 90},
                    Types{ComputeType::kF32, DType::kBF16, 90},
                    Types{ComputeType::kBF16, DType::kBF16, 90},
                    Types{ComputeType::kBF16, DType::kBF16, 75}),
    TypesName);

// On a device without products of bf16 the values are the same, and so are sums in one order.
TEST(WidenedProductTest, WithoutBf16TheSameValuesAreMultiplied) {
  const RandomWeight weight(DType::kBF16, 70, 100, 1);
  const std::vector<float> x = naive::RandomValues(9 * 100, 2);
  const auto bits_at = [&](int capability) {
    return BitsOf(FloatProduct({ComputeType::kBF16, DType::kBF16, capability}).Multiply(weight, x));
  };
  EXPECT_EQ(bits_at(75), bits_at(80));
}

}  // namespace
}  // namespace nightshift
