#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/cuda_emulator/cuda_runtime.h"
#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/cuda_emulator/stream_queue.h"

namespace nightshift::cuda_emulator {
namespace {

constexpr size_t kFloats = 1024;
constexpr size_t kBytes = kFloats * sizeof(float);

// Two streams, an event, device memory and pinned memory of the host.
class EmulatorTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    SetMachine({});
    for (cudaStream_t* stream : {&stream_, &other_}) {
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
    device_ = static_cast<float*>(memory);
    ASSERT_EQ(cudaHostRegister(host_.data(), kBytes, cudaHostRegisterDefault), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    cudaEventDestroy(event_);
    cudaHostUnregister(host_.data());
    cudaFree(device_);
    EXPECT_EQ(AllocatedBytes(), 0U);
  }

  cudaError_t Upload(cudaStream_t stream) {
    return cudaMemcpyAsync(device_, host_.data(), kBytes, cudaMemcpyHostToDevice, stream);
  }
  cudaError_t Download(cudaStream_t stream) {
    return cudaMemcpyAsync(host_.data(), device_, kBytes, cudaMemcpyDeviceToHost, stream);
  }
  // Adds to every float; declares that it reads and writes them.
  cudaError_t Add(float amount, cudaStream_t stream, const char* name = "Add") {
    return EnqueueKernel(stream, name, {{device_, kBytes, true}}, [=, device = device_] {
      for (size_t i = 0; i < kFloats; ++i) {
        device[i] += amount;
      }
    });
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  float* device_ = nullptr;
  std::array<float, kFloats> host_ = {};
};
using EmulatorDeathTest = EmulatorTest;

TEST_F(EmulatorTest, AStreamKeepsItsOrder) {
  host_.fill(1.0F);
  Upload(stream_);
  Add(2.0F, stream_);
  Download(stream_);
  EXPECT_EQ(host_[7], 1.0F) << "works run late: nobody has waited";
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(host_[7], 3.0F);
}

TEST_F(EmulatorTest, AnEventOrdersTwoStreams) {
  host_.fill(1.0F);
  Upload(other_);
  EXPECT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_), cudaSuccess);
  Add(2.0F, stream_);
  Download(stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(host_[7], 3.0F);
}

TEST_F(EmulatorTest, AHostThatWaitsOrdersTwoStreams) {
  Upload(other_);
  EXPECT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(Add(2.0F, stream_), cudaSuccess);
}

TEST_F(EmulatorTest, NewDeviceMemoryIsNoZeros) {
  Download(stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_NE(host_[7], host_[7]);
  cudaMemsetAsync(device_, 0, kBytes, stream_);
  Download(stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(host_[7], 0.0F);
}

TEST_F(EmulatorTest, WorksRunAtOnceWhereAsked) {
  TearDown();
  SetMachine({.runs_late = false});
  cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  std::atomic<bool> has_run = false;
  EnqueueKernel(stream_, "Note", [&] {
    has_run = true;
    has_run.notify_all();
  });
  has_run.wait(false);  // would never return
  cudaStreamDestroy(stream_);
  SetUp();
}

TEST_F(EmulatorDeathTest, TwoStreamsWithoutAFenceAreARace) {
  EXPECT_DEATH(
      {
        Upload(other_);
        Add(2.0F, stream_, "RmsNorm");
      },
      "no fence between \"copy to the device\" .*writes 4096 bytes at 0x.* and \"RmsNorm\" .*writes");
}

TEST_F(EmulatorDeathTest, AnEventThatWasRecordedTooEarlyOrdersNothing) {
  EXPECT_DEATH(
      {
        cudaEventRecord(event_, other_);
        Upload(other_);
        cudaStreamWaitEvent(stream_, event_);
        Add(2.0F, stream_);
      },
      "no fence between \"copy to the device\" .* and \"Add\"");
}

TEST_F(EmulatorTest, ReadersNeedNoFenceNorDoOthersRanges) {
  const size_t half = kBytes / 2;
  std::byte* const bytes = reinterpret_cast<std::byte*>(device_);
  EnqueueKernel(stream_, "A", {{bytes, half, false}}, [] {});
  EnqueueKernel(other_, "B", {{bytes, half, false}, {bytes + half, half, true}}, [] {});
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(EmulatorDeathTest, TheHostMayNotTouchDeviceMemory) {
  EXPECT_DEATH(device_[3] = 1.0F, "the host touches device memory at 0x.*only kernels and copies");
  EXPECT_DEATH(static_cast<void>(std::vector<float>(device_, device_ + 8)), "the host touches");
}

TEST_F(EmulatorDeathTest, AKernelMayNotTouchWhatIsNotThere) {
  EXPECT_DEATH(
      {
        EnqueueKernel(stream_, "Rope", [this] { device_[kFloats] = 1.0F; });
        cudaStreamSynchronize(stream_);
      },
      "Rope touches device memory at 0x.*past the end");
}

TEST_F(EmulatorDeathTest, MisuseIsNamed) {
  std::vector<float> pageable(kFloats);
  EXPECT_DEATH(cudaMemcpyAsync(device_, pageable.data(), kBytes, cudaMemcpyHostToDevice, stream_),
               "copy to the device: 4096 bytes of the host at 0x.* are not pinned");
  EXPECT_DEATH(
      cudaMemcpyAsync(device_ + 1, host_.data(), kBytes, cudaMemcpyHostToDevice, stream_),
      "4096 bytes at 0x.* are not inside one allocation");
  EXPECT_DEATH(EnqueueKernel(nullptr, "K", [] {}), "work for the default stream");
  EXPECT_DEATH(cudaFree(device_ + 1), "which cudaMalloc did not return");
}

TEST_F(EmulatorTest, AskedForFaultsComeAtTheirCall) {
  void* memory = nullptr;
  FailCall(Fault::kAllocation, 1);
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorMemoryAllocation);
  std::array<std::byte, 64> more = {};
  FailCall(Fault::kRegistration, 1);
  EXPECT_EQ(cudaHostRegister(more.data(), more.size(), 0), cudaErrorMemoryAllocation);
  FailCall(Fault::kLaunch, 2);
  EXPECT_EQ(Add(1.0F, stream_), cudaSuccess);
  EXPECT_EQ(Add(1.0F, stream_), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(EmulatorTest, AStickyFaultIsTheAnswerOfAllThatFollows) {
  FailCall(Fault::kKernel, 1);
  EXPECT_EQ(Add(1.0F, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_EQ(Upload(other_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
}

TEST_F(EmulatorTest, ACopyMayEndWithAFault) {
  FailCall(Fault::kCopy, 1);
  EXPECT_EQ(Upload(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorECCUncorrectable);
}

TEST_F(EmulatorTest, DeviceMemoryIsLimited) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, total_bytes - kBytes);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, free_bytes + 1), cudaErrorMemoryAllocation);
}

// Without devices nothing of the fixture can be made.
TEST(EmulatedMachineTest, DriverAndDevicesAreAsSet) {
  int count = -1;
  SetMachine({.driver_version = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  SetMachine({.num_devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  SetMachine({.num_devices = 2, .major = 7, .minor = 5});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaDeviceProp properties;
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_EQ(std::string(properties.name), "Emulated GPU 1");
  EXPECT_EQ(properties.major * 10 + properties.minor, 75);
}

}  // namespace
}  // namespace nightshift::cuda_emulator
