#include "engine/memory/pool.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(PoolTest, GivesZeroedAlignedMemory) {
  Pool pool("host", 8 * kMiB);
  ASSERT_OK_AND_ASSIGN(Buffer small, pool.Reserve(100, "a test"));
  EXPECT_EQ(small.bytes().size(), 4096U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.bytes().data()) % 4096, 0U);
  ASSERT_OK_AND_ASSIGN(Buffer large, pool.Reserve(5 * kMiB, "a test"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.bytes().data()) % (2 * kMiB), 0U);
  const auto is_zero = [](std::byte value) { return value == std::byte{0}; };
  EXPECT_TRUE(std::all_of(large.bytes().begin(), large.bytes().end(), is_zero));
  std::fill(large.bytes().begin(), large.bytes().end(), std::byte{1});
}

TEST(PoolTest, RefusesWithNumbersAndThePurpose) {
  Pool pool("host", 3 * 4096);
  ASSERT_OK_AND_ASSIGN(const Buffer first, pool.Reserve(4096, "first things"));
  EXPECT_THAT(pool.Reserve(3 * 4096, "second things"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "second things in pool host: asked 12288 bytes, free 8192, budget 12288"));
  EXPECT_EQ(pool.free_bytes(), 8192);
}

TEST(PoolTest, ADestroyedBufferIsFreeAgain) {
  Pool pool("host", 4 * kMiB);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(Buffer buffer, pool.Reserve(4 * kMiB, "a test"));
    Buffer moved = std::move(buffer);
    EXPECT_EQ(pool.free_bytes(), 0);
    EXPECT_EQ(moved.bytes().size(), static_cast<size_t>(4 * kMiB));
  }
  EXPECT_EQ(pool.free_bytes(), 4 * kMiB);
}

}  // namespace
}  // namespace nightshift
