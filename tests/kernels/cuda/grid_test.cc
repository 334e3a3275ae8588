// The launch half of the CUDA emulator: threads, barriers and warps of a grid.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"
#include "tests/support/cuda_emulator/machine.h"

namespace nightshift::cuda_emulator {
namespace {

TEST(GridTest, CallsEachThreadOfEachBlockOnce) {
  std::vector<int> calls(2 * 3 * 2 * 4 * 3 * 2);
  RunGrid("Count", {2, 3, 2}, {4, 3, 2}, [&] {
    const unsigned int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++calls[block * 24 + thread];
  });
  EXPECT_EQ(calls, std::vector<int>(calls.size(), 1));
}

// Each thread reads what another one wrote, step after step.
TEST(GridTest, BarriersLetThreadsSeeWhatOthersWrote) {
  constexpr unsigned int kThreads = 96;
  std::vector<int64_t> sums(3);
  RunGrid("Add", 3, kThreads, [&] {
    __shared__ std::array<int64_t, kThreads> values;
    values[threadIdx.x] = threadIdx.x + blockIdx.x;
    for (unsigned int distance = kThreads / 2; distance >= 3; distance /= 2) {
      __syncthreads();
      if (threadIdx.x < distance) values[threadIdx.x] += values[threadIdx.x + distance];
    }
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = values[0] + values[1] + values[2];
    __syncthreads();
  });
  for (size_t block = 0; block < sums.size(); ++block) {
    EXPECT_EQ(sums[block], 95 * 96 / 2 + 96 * static_cast<int64_t>(block));
  }
}

TEST(GridTest, LanesOfAWarpExchangeAndOtherWarpsDoNotWait) {
  std::vector<float> sums(64);
  RunGrid("Sum", 1, 64, [&] {
    float sum = 0.0F;
    // The second warp takes another number of turns.
    for (unsigned int turn = 0; turn <= threadIdx.x / 32; ++turn) {
      sum += cuda::WarpSum(static_cast<float>(threadIdx.x));
    }
    sums[threadIdx.x] = sum;
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i], i < 32 ? 496.0F : 2.0F * (496.0F + 32.0F * 32.0F));
  }
}

void WaitInPart() {
  if (threadIdx.x < 40) __syncthreads();
}

void WaitApart() {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

void SumOfMost() {
  if (threadIdx.x > 0) cuda::WarpSum(1.0F);
}

TEST(GridTest, ABarrierThatSomeThreadsNeverReachNamesTheKernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      RunGrid("Forked", 1, 64, WaitInPart),
      "kernel Forked.*of 64 threads 24 have ended, 40 wait at __syncthreads of .*grid_test");
  EXPECT_DEATH(RunGrid("Forked", 1, 64, WaitApart), "kernel Forked.*wait at different barriers");
  EXPECT_DEATH(RunGrid("Torn", 1, 32, SumOfMost),
               "kernel Torn.*1 have ended, 31 wait for their warp");
}

__global__ void FillKernel(float value, float* target) {
  target[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

TEST(GridTest, ALaunchRunsBehindWhatTheStreamHasAndKeepsTheFirstRefusal) {
  SetMachine({});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  std::vector<float> filled(12);  // the emulator's kernels reach the host's memory, too
  cuda::Launcher launcher(stream);
  launcher.Launch("Fill", 3, 4, FillKernel, 1.0F, filled.data());
  launcher.Launch("Nothing", 0, 4, FillKernel, 3.0F, filled.data());
  launcher.Launch("Fill", 2, 4, FillKernel, 2.0F, filled.data());
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(filled, (std::vector<float>{2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(launcher.error(), cudaSuccess);
  FailCall(Fault::kLaunch, 1);
  launcher.Launch("Refused", 1, 4, FillKernel, 3.0F, filled.data());
  launcher.Launch("Fill", 1, 4, FillKernel, 4.0F, filled.data());
  EXPECT_EQ(launcher.error(), cudaErrorLaunchOutOfResources);
  EXPECT_STREQ(launcher.failed_step(), "Refused");
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace nightshift::cuda_emulator
