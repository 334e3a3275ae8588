#include "engine/memory/kv_cache.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr KvPageLayout kLayout{.dtype = DType::kF32, .kv_heads = 2, .head_width = 16};

struct Fixture {
  explicit Fixture(int64_t num_pages)
      : pool("host", KvCache::PageBytes(kLayout, 3) * num_pages),
        cache(KvCache::Create(pool, kLayout, 3, num_pages).value()) {}

  Pool pool;
  std::unique_ptr<KvCache> cache;
};

TEST(KvCacheTest, PagesOfAllLayersAndIdsAreApartAndAligned) {
  Fixture fixture(5);
  std::set<std::byte*> starts;
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int32_t page = 0; page < 5; ++page) {
      starts.insert(fixture.cache->Page(layer, page));
    }
  }
  ASSERT_EQ(starts.size(), 15U);
  std::byte* last = nullptr;
  for (std::byte* start : starts) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % 4096, 0U);
    if (last != nullptr) {
      EXPECT_GE(start - last, kLayout.page_bytes());
    }
    last = start;
  }
}

TEST(KvCacheTest, CountsTheWholeArenaAgainstThePool) {
  Fixture fixture(5);
  EXPECT_EQ(fixture.pool.free_bytes(), 0);
  EXPECT_THAT(KvCache::Create(fixture.pool, kLayout, 3, 1),
              StatusIs(absl::StatusCode::kResourceExhausted, "kv pages"));
}

TEST(PageTableTest, GrowsByWholePages) {
  Fixture fixture(5);
  PageTable table(*fixture.cache);
  const std::vector<std::pair<int64_t, int64_t>> steps = {{1, 1}, {32, 1}, {33, 2}, {100, 4}};
  for (const auto& [positions, pages] : steps) {
    ASSERT_OK(table.Grow(positions));
    EXPECT_EQ(table.num_pages(), pages) << positions;
  }
  EXPECT_EQ(fixture.cache->free_pages(), 1);
}

TEST(PageTableTest, RefusesWithNumbersAndTakesNothing) {
  Fixture fixture(5);
  PageTable first(*fixture.cache);
  PageTable second(*fixture.cache);
  ASSERT_OK(first.Grow(3 * 32));
  ASSERT_OK(second.Grow(1));
  EXPECT_THAT(second.Grow(4 * 32),
              StatusIs(absl::StatusCode::kResourceExhausted, "asked 3 kv pages, free 1, budget 5"));
  EXPECT_EQ(second.num_pages(), 1);
  EXPECT_EQ(fixture.cache->free_pages(), 1);
}

TEST(PageTableTest, GivesItsPagesBackAndNoPageHasTwoOwners) {
  Fixture fixture(4);
  for (int round = 0; round < 3; ++round) {
    PageTable first(*fixture.cache);
    PageTable second(*fixture.cache);
    ASSERT_OK(first.Grow(64));
    ASSERT_OK(second.Grow(64));
    std::set<int32_t> ids(first.page_ids().begin(), first.page_ids().end());
    ids.insert(second.page_ids().begin(), second.page_ids().end());
    EXPECT_EQ(ids.size(), 4U);
    first.Clear();
    EXPECT_EQ(fixture.cache->free_pages(), 2);
    ASSERT_OK(second.Grow(128));
  }
  EXPECT_EQ(fixture.cache->free_pages(), 4);
}

}  // namespace
}  // namespace nightshift
