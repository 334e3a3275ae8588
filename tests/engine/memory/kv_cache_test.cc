#include "engine/memory/kv_cache.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr KvPageLayout kLayout{.dtype = DType::kF32, .kv_heads = 2, .head_width = 16};

// Layers of "full" and "sliding" kind by the letters f and s.
KvLayers Layers(const std::string& kinds, int64_t window) {
  ModelConfig config;
  config.num_layers = static_cast<int64_t>(kinds.size());
  if (window > 0) {
    config.sliding_window = window;
    for (const char kind : kinds) {
      config.sliding_layers.push_back(kind == 's');
    }
  }
  return KvLayers(config);
}

struct Fixture {
  explicit Fixture(int64_t num_pages, const std::string& kinds = "fff", int64_t window = 0)
      : layers(Layers(kinds, window)),
        pool("host", KvCache::PageBytes(kLayout, layers) * num_pages),
        cache(KvCache::Create(pool, kLayout, layers, num_pages).value()) {}

  KvLayers layers;
  Pool pool;
  std::unique_ptr<KvCache> cache;
};

// The pages of every layer for stretches [first, last) of a table; null ones are left out.
std::set<std::byte*> PagesOf(const PageTable& table, int64_t num_layers, int64_t first,
                             int64_t last) {
  std::set<std::byte*> pages;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (int64_t stretch = first; stretch < last; ++stretch) {
      if (table.Page(layer, stretch) != nullptr) {
        pages.insert(table.Page(layer, stretch));
      }
    }
  }
  return pages;
}

TEST(KvCacheTest, PagesOfAllLayersAndIdsAreApartAndAligned) {
  Fixture fixture(5);
  std::set<std::byte*> starts;
  for (int64_t slot = 0; slot < 3; ++slot) {
    for (int32_t page = 0; page < 5; ++page) {
      starts.insert(fixture.cache->Page(slot, page));
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
  EXPECT_THAT(KvCache::Create(fixture.pool, kLayout, fixture.layers, 1),
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
    std::set<std::byte*> pages = PagesOf(first, 3, 0, 2);
    pages.merge(PagesOf(second, 3, 0, 2));
    EXPECT_EQ(pages.size(), 4U * 3U);
    first.Clear();
    EXPECT_EQ(fixture.cache->free_pages(), 2);
    ASSERT_OK(second.Grow(128));
  }
  EXPECT_EQ(fixture.cache->free_pages(), 4);
}

TEST(PageTableTest, KeepsPagesOfTheWindowOnlyWhereAllLayersSlide) {
  Fixture fixture(4, "ss", 40);
  PageTable table(*fixture.cache);
  for (int64_t position = 0; position < 1000; ++position) {
    ASSERT_OK(table.Grow(position + 1)) << position;
    table.DropBehind(position + 1);
    // The next query is at position + 1; its window begins at position - 38.
    const int64_t first = std::max<int64_t>(0, position - 38) / 32;
    EXPECT_EQ(table.num_pages(), position / 32 + 1 - first) << position;
    EXPECT_LE(table.num_pages(), 3);
    ASSERT_NE(table.Page(1, position / 32), nullptr);
  }
  EXPECT_EQ(table.Page(0, 0), nullptr);
  EXPECT_EQ(table.num_stretches(), 32);
  table.Clear();
  EXPECT_EQ(fixture.cache->free_pages(), 4);
}

TEST(PageTableTest, LayersOfBothKindsDrawOnOnePoolAndNoPageHasTwoOwners) {
  // Five layers slide and one does not: an id stands for one layer.
  Fixture fixture(60, "sssfss", 32);
  EXPECT_EQ(fixture.layers.unit_layers(), 1);
  EXPECT_EQ(fixture.layers.ids_per_stretch(), 6);
  PageTable table(*fixture.cache);
  ASSERT_OK(table.Grow(4 * 32));
  EXPECT_EQ(table.num_pages(), 24);
  EXPECT_EQ(PagesOf(table, 6, 0, 4).size(), 24U);
  table.DropBehind(4 * 32);  // sees positions 97 to 128
  EXPECT_EQ(table.num_pages(), 4 + 5);
  EXPECT_EQ(fixture.cache->free_pages(), 60 - 9);
  EXPECT_EQ(table.Page(0, 2), nullptr);
  EXPECT_NE(table.Page(3, 0), nullptr);
  PageTable other(*fixture.cache);
  ASSERT_OK(other.Grow(8 * 32));
  std::set<std::byte*> pages = PagesOf(other, 6, 0, 8);
  pages.merge(PagesOf(table, 6, 0, 4));
  EXPECT_EQ(pages.size(), 48U + 9U);
}

TEST(PageTableTest, LayersShareAnIdAsFarAsBothKindsAllow) {
  Fixture fixture(8, "sfsfsfsf", 32);
  EXPECT_EQ(fixture.layers.unit_layers(), 4);
  PageTable table(*fixture.cache);
  ASSERT_OK(table.Grow(64));
  EXPECT_EQ(table.num_pages(), 4);
  EXPECT_EQ(PagesOf(table, 8, 0, 2).size(), 16U);
}

TEST(KvLayersTest, CountsTheMostThatASequenceHolds) {
  EXPECT_EQ(Layers("fff", 0).Needs(512).Most(1000), 32);
  // A window of 40 and spans of 16: 55 positions of any alignment, so 3 stretches.
  const KvPageNeeds sliding = Layers("ss", 40).Needs(16);
  EXPECT_EQ(sliding.Most(40), 2);
  EXPECT_EQ(sliding.Most(1000), 3);
  const KvPageNeeds mixed = Layers("sssfss", 40).Needs(16);
  EXPECT_EQ(mixed.Most(1000), 32 + 5 * 3);
}

// What Needs promises holds for every window, span and alignment.
TEST(KvLayersTest, ASequenceNeverHoldsMoreThanItsNeeds) {
  for (const int64_t window : {1, 31, 32, 33, 100}) {
    for (const int64_t span : {1, 7, 32, 50}) {
      Fixture fixture(100, "sf", window);
      const KvPageNeeds needs = fixture.layers.Needs(span);
      PageTable table(*fixture.cache);
      for (int64_t positions = 3; positions < 700; positions += span) {
        ASSERT_OK(table.Grow(positions));
        EXPECT_LE(table.num_pages(), needs.Most(positions)) << window << " " << span;
        table.DropBehind(positions);
      }
    }
  }
}

}  // namespace
}  // namespace nightshift
