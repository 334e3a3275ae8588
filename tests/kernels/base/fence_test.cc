#include "kernels/base/fence.h"

#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

TEST(FenceTest, WaitReturnsWhatTheFenceWasCompletedWith) {
  Fence fence;
  EXPECT_FALSE(fence.is_complete());
  fence.Complete(absl::DataLossError("a shard"));
  EXPECT_TRUE(fence.is_complete());
  EXPECT_THAT(fence.Wait(), StatusIs(absl::StatusCode::kDataLoss, "a shard"));
  EXPECT_THAT(fence.Wait(), StatusIs(absl::StatusCode::kDataLoss, "a shard"));
}

TEST(FenceTest, WhatCameBeforeTheCompletionIsSeenAfterTheWait) {
  for (int round = 0; round < 200; ++round) {
    auto fence = std::make_unique<Fence>();
    int value = 0;  // plain memory: without the fence a race
    std::thread other([&] {
      value = round;
      fence->Complete(absl::OkStatus());
    });
    EXPECT_OK(fence->Wait());
    EXPECT_EQ(value, round);
    fence = nullptr;  // the other thread may still be on its way out of Complete
    other.join();
  }
}

}  // namespace
}  // namespace nightshift
