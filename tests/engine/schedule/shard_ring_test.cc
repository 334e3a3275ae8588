#include "engine/schedule/shard_ring.h"

#include <deque>
#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

TEST(ShardRingTest, ShardsFollowEachOtherAndBeginAgainWhereOneDoesNotFit) {
  ShardRing ring(100);
  EXPECT_EQ(ring.Place(40), 0);
  EXPECT_EQ(ring.Place(40), 40);
  EXPECT_EQ(ring.Place(40), std::nullopt);  // 20 are left at the end, none at the beginning
  ring.Release();
  EXPECT_EQ(ring.Place(40), 0);
  EXPECT_EQ(ring.used_bytes(), 100);
  EXPECT_EQ(ring.Place(1), std::nullopt);
  ring.Release();
  EXPECT_EQ(ring.Place(41), 40);
  EXPECT_EQ(ring.num_shards(), 2U);
  EXPECT_EQ(ring.used_bytes(), 81);
}

TEST(ShardRingTest, AnEmptyRingHasRoomForAll) {
  ShardRing ring(100);
  EXPECT_EQ(ring.Place(60), 0);
  ring.Release();
  EXPECT_EQ(ring.used_bytes(), 0);
  EXPECT_EQ(ring.Place(100), 0);
}

TEST(ShardRingTest, PlacesNeverOverlapAndASetOfShardsFitsWhereverItBegins) {
  std::mt19937 generator(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(generator);
  };
  for (int round = 0; round < 200; ++round) {
    const int64_t total = draw(20, 200);
    const int64_t largest = draw(1, 20);
    ShardRing ring(ShardRing::BytesFor(total, largest));
    std::deque<std::pair<int64_t, int64_t>> held;  // offset, bytes
    int64_t held_bytes = 0;
    for (int i = 0; i < 300; ++i) {
      const int64_t bytes = draw(1, largest);
      while (held_bytes + bytes > total) {
        held_bytes -= held.front().second;
        held.pop_front();
        ring.Release();
      }
      const std::optional<int64_t> offset = ring.Place(bytes);
      ASSERT_TRUE(offset.has_value());
      ASSERT_LE(*offset + bytes, total + largest);
      for (const auto& [other, other_bytes] : held) {
        ASSERT_TRUE(*offset + bytes <= other || other + other_bytes <= *offset);
      }
      held.emplace_back(*offset, bytes);
      held_bytes += bytes;
    }
  }
}

}  // namespace
}  // namespace nightshift
