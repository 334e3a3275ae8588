#include "kernels/arena.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "absl/status/status.h"

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Addresses that nobody maps: an arena never touches its memory.
std::span<std::byte> Nowhere(int64_t bytes) {
  return {reinterpret_cast<std::byte*>(uintptr_t{64} << 20), static_cast<size_t>(bytes)};
}

class ArenaTest : public testing::Test {
 protected:
  static absl::Status Nothing(std::span<std::byte>) { return absl::OkStatus(); }
  int64_t OffsetOf(std::span<std::byte> part) { return part.data() - Nowhere(1).data(); }

  Arena arena_{Nowhere(16 * kMiB), Nothing};
};

TEST_F(ArenaTest, PartsAreWholePagesBehindEachOther) {
  ASSERT_OK_AND_ASSIGN(const auto small, arena_.Take(1));
  EXPECT_EQ(OffsetOf(small), 0);
  EXPECT_EQ(small.size(), 4096U);
  ASSERT_OK_AND_ASSIGN(const auto large, arena_.Take(3 * kMiB));
  EXPECT_EQ(OffsetOf(large), 4096);
  arena_.GiveBack(small);
  ASSERT_OK_AND_ASSIGN(const auto next, arena_.Take(4097));
  EXPECT_EQ(OffsetOf(next), 4096 + 3 * kMiB) << "the first gap is too small";
  EXPECT_EQ(arena_.free_bytes(), 13 * kMiB - 2 * 4096);
}

TEST_F(ArenaTest, WhatComesBackIsJoinedAndTakenAgain) {
  std::vector<std::span<std::byte>> parts;
  for (int i = 0; i < 8; ++i) {
    ASSERT_OK_AND_ASSIGN(parts.emplace_back(), arena_.Take(2 * kMiB));
  }
  EXPECT_EQ(arena_.free_bytes(), 0);
  for (const size_t i : {3U, 1U, 2U, 7U, 0U}) {
    arena_.GiveBack(parts[i]);
  }
  ASSERT_OK_AND_ASSIGN(const auto joined, arena_.Take(8 * kMiB));
  EXPECT_EQ(OffsetOf(joined), 0);
}

TEST_F(ArenaTest, RefusesWithNumbers) {
  ASSERT_OK_AND_ASSIGN(const auto part, arena_.Take(10 * kMiB));
  EXPECT_THAT(arena_.Take(8 * kMiB),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "take 8388608 bytes of an arena of 16777216: free 6291456, the largest part"));
  arena_.GiveBack(part);
  EXPECT_OK(arena_.Take(16 * kMiB).status());
}

TEST(ArenaClearTest, EachPartIsClearedAndARefusalGivesItBack) {
  std::vector<size_t> cleared;
  Arena arena(Nowhere(kMiB), [&](std::span<std::byte> part) {
    cleared.push_back(part.size());
    return cleared.size() == 2 ? absl::InternalError("fault") : absl::OkStatus();
  });
  EXPECT_OK(arena.Take(8192).status());
  EXPECT_THAT(arena.Take(4096), StatusIs(absl::StatusCode::kInternal, "fault"));
  EXPECT_EQ(arena.free_bytes(), kMiB - 8192);
  EXPECT_EQ(cleared, (std::vector<size_t>{8192, 4096}));
}

}  // namespace
}  // namespace nightshift
