#include "engine/memory/kv_cache.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

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
        cache(KvCache::Create(pool, pool, "", kLayout, layers, {.device = num_pages}).value()) {}

  KvLayers layers;
  Pool pool;
  std::unique_ptr<KvCache> cache;
};

// The pages of every layer for stretches [first, last) of a table; null ones are left out.
std::set<std::byte*> PagesOf(const KvCache& cache, const PageTable& table, int64_t num_layers,
                             int64_t first, int64_t last) {
  std::set<std::byte*> pages;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (int64_t stretch = first; stretch < last; ++stretch) {
      if (const auto place = table.PlaceOf(layer, stretch); place.has_value()) {
        pages.insert(cache.Page(place->slot, place->id));
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
  EXPECT_THAT(
      KvCache::Create(fixture.pool, fixture.pool, "", kLayout, fixture.layers, {.device = 1}),
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
    std::set<std::byte*> pages = PagesOf(*fixture.cache, first, 3, 0, 2);
    pages.merge(PagesOf(*fixture.cache, second, 3, 0, 2));
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
    ASSERT_TRUE(table.PlaceOf(1, position / 32).has_value());
  }
  EXPECT_FALSE(table.PlaceOf(0, 0).has_value());
  EXPECT_EQ(table.num_stretches(), 32);
  table.Clear();
  EXPECT_EQ(fixture.cache->free_pages(), 4);
}

TEST(PageTableTest, OneLayerAtATimeFillsAllLayersOfAPage) {
  Fixture fixture(9);  // three layers
  PageTable table(*fixture.cache);
  ASSERT_OK(table.GrowOneLayer(5 * 32 - 1));
  EXPECT_EQ(table.num_stretches(), 5);
  EXPECT_EQ(table.num_pages(), 2);
  EXPECT_EQ(fixture.cache->free_pages(), 7);
  const std::set<std::byte*> pages = PagesOf(*fixture.cache, table, 1, 0, 5);
  EXPECT_EQ(pages.size(), 5U);
  EXPECT_EQ(PagesOf(*fixture.cache, table, 3, 0, 5), pages);  // the same for all layers
  PageTable other(*fixture.cache);
  EXPECT_THAT(other.GrowOneLayer(22 * 32),
              StatusIs(absl::StatusCode::kResourceExhausted, "asked 8 kv pages, free 7"));
  ASSERT_OK(other.GrowOneLayer(21 * 32));
  std::set<std::byte*> all = PagesOf(*fixture.cache, other, 1, 0, 21);
  all.insert(pages.begin(), pages.end());
  EXPECT_EQ(all.size(), 26U);
  other.DropBehind(21 * 32);
  EXPECT_EQ(other.num_pages(), 7);
  other.Clear();
  table.Clear();
  EXPECT_EQ(fixture.cache->free_pages(), 9);
  ASSERT_OK(table.Grow(32));  // as any other
  EXPECT_EQ(PagesOf(*fixture.cache, table, 3, 0, 1).size(), 3U);
}

TEST(PageTableTest, LayersOfBothKindsDrawOnOnePoolAndNoPageHasTwoOwners) {
  // Five layers slide and one does not: an id stands for one layer.
  Fixture fixture(60, "sssfss", 32);
  EXPECT_EQ(fixture.layers.unit_layers(), 1);
  EXPECT_EQ(fixture.layers.ids_per_stretch(), 6);
  PageTable table(*fixture.cache);
  ASSERT_OK(table.Grow(4 * 32));
  EXPECT_EQ(table.num_pages(), 24);
  EXPECT_EQ(PagesOf(*fixture.cache, table, 6, 0, 4).size(), 24U);
  table.DropBehind(4 * 32);  // sees positions 97 to 128
  EXPECT_EQ(table.num_pages(), 4 + 5);
  EXPECT_EQ(fixture.cache->free_pages(), 60 - 9);
  EXPECT_FALSE(table.PlaceOf(0, 2).has_value());
  EXPECT_TRUE(table.PlaceOf(3, 0).has_value());
  PageTable other(*fixture.cache);
  ASSERT_OK(other.Grow(8 * 32));
  std::set<std::byte*> pages = PagesOf(*fixture.cache, other, 6, 0, 8);
  pages.merge(PagesOf(*fixture.cache, table, 6, 0, 4));
  EXPECT_EQ(pages.size(), 48U + 9U);
}

TEST(PageTableTest, LayersShareAnIdAsFarAsBothKindsAllow) {
  Fixture fixture(8, "sfsfsfsf", 32);
  EXPECT_EQ(fixture.layers.unit_layers(), 4);
  PageTable table(*fixture.cache);
  ASSERT_OK(table.Grow(64));
  EXPECT_EQ(table.num_pages(), 4);
  EXPECT_EQ(PagesOf(*fixture.cache, table, 8, 0, 2).size(), 16U);
}

// The first `count` of them.
std::vector<const OfferedStretch*> Pointers(const std::vector<OfferedStretch>& offered,
                                            size_t count = SIZE_MAX) {
  std::vector<const OfferedStretch*> pointers;
  for (size_t i = 0; i < std::min(count, offered.size()); ++i) {
    pointers.push_back(&offered[i]);
  }
  return pointers;
}

std::vector<OfferedStretch> OfferAll(PageTable& table) {
  std::vector<OfferedStretch> offered;
  for (int64_t stretch = 0; stretch < table.num_stretches(); ++stretch) {
    offered.push_back(table.Offer(stretch));
  }
  return offered;
}

TEST(PageTableTest, ATakenPageCountsOnceAndIsFreeWhenTheLastLetsItGo) {
  Fixture fixture(6);
  PageTable first(*fixture.cache);
  PageTable second(*fixture.cache);
  ASSERT_OK(first.Grow(3 * 32));
  const std::vector<OfferedStretch> offered = OfferAll(first);
  ASSERT_EQ(second.CountTakeable(Pointers(offered)), 3);
  second.Take(Pointers(offered));
  EXPECT_EQ(fixture.cache->free_pages(), 3);
  EXPECT_EQ(PagesOf(*fixture.cache, second, 3, 0, 3), PagesOf(*fixture.cache, first, 3, 0, 3));
  ASSERT_OK(second.Grow(4 * 32));
  EXPECT_EQ(second.num_pages(), 4);
  std::vector<bool> seen(6, false);
  EXPECT_EQ(first.CountUnseen(seen), 3);
  EXPECT_EQ(second.CountUnseen(seen), 1);
  first.Clear();
  EXPECT_EQ(fixture.cache->free_pages(), 2);
  EXPECT_EQ(second.num_stretches(), 4);
  second.Clear();
  EXPECT_EQ(fixture.cache->free_pages(), 6);
}

TEST(PageTableTest, OfferedPagesCanBeTakenUntilTheyAreGivenToSomebodyElse) {
  Fixture fixture(6);
  PageTable first(*fixture.cache);
  ASSERT_OK(first.Grow(4 * 32));
  const std::vector<OfferedStretch> offered = OfferAll(first);
  const std::set<std::byte*> pages = PagesOf(*fixture.cache, first, 3, 0, 2);
  first.Clear();
  EXPECT_EQ(fixture.cache->free_pages(), 6);
  PageTable other(*fixture.cache);
  ASSERT_OK(other.Grow(4 * 32));  // two that nobody had, then the end of what was offered
  PageTable second(*fixture.cache);
  ASSERT_EQ(second.CountTakeable(Pointers(offered)), 2);
  second.Take(Pointers(offered, 2));
  EXPECT_EQ(PagesOf(*fixture.cache, second, 3, 0, 2), pages);
  EXPECT_EQ(fixture.cache->free_pages(), 0);
  EXPECT_THAT(second.Grow(3 * 32), StatusIs(absl::StatusCode::kResourceExhausted, "free 0"));
  second.Clear();
  ASSERT_OK(other.Grow(6 * 32));
  EXPECT_EQ(second.CountTakeable(Pointers(offered)), 0);
}

// What slides has the window of the next position only: a run ends where that is there.
TEST(PageTableTest, TakesOfSlidingLayersWhatTheNextPositionSees) {
  Fixture fixture(40, "sf", 40);
  PageTable first(*fixture.cache);
  std::vector<OfferedStretch> offered;
  for (int64_t stretch = 0; stretch < 6; ++stretch) {
    ASSERT_OK(first.Grow((stretch + 1) * 32));
    offered.push_back(first.Offer(stretch));
    first.DropBehind((stretch + 1) * 32);
  }
  PageTable second(*fixture.cache);
  ASSERT_EQ(second.CountTakeable(Pointers(offered)), 6);
  second.Take(Pointers(offered));
  EXPECT_EQ(second.num_pages(), first.num_pages());
  EXPECT_EQ(second.num_pages(), 6 + 2);  // sees positions 153 to 192
  EXPECT_FALSE(second.PlaceOf(0, 3).has_value());
  EXPECT_EQ(second.PlaceOf(0, 4)->id, first.PlaceOf(0, 4)->id);
  second.DropBehind(7 * 32);
  second.Clear();
  PageTable other(*fixture.cache);
  ASSERT_OK(other.Grow(16 * 32));  // all that is free, so what slid behind is gone
  EXPECT_EQ(fixture.cache->free_pages(), 0);
  EXPECT_EQ(second.CountTakeable(Pointers(offered, 5)), 0);
  EXPECT_EQ(second.CountTakeable(Pointers(offered)), 6);
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

// 4 pages on the device, 4 on the host, 8 on disk.
TEST(KvTiersTest, ARequestKeepsToOneTierAsLongAsThatHasPages) {
  const KvLayers layers = Layers("ff", 0);
  const int64_t page_bytes = KvCache::PageBytes(kLayout, layers);
  Pool device("device", 4 * page_bytes);
  Pool host("host", 4 * page_bytes);
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto cache,
                       KvCache::Create(device, host, folder.path(), kLayout, layers, {4, 4, 8}));
  EXPECT_EQ(cache->file()->bytes(), 8 * page_bytes);
  const auto tiers_of = [&](const PageTable& table) {
    std::vector<Tier> tiers;
    for (int64_t stretch = 0; stretch < table.num_stretches(); ++stretch) {
      tiers.push_back(cache->TierOf(table.PlaceOf(0, stretch)->id));
    }
    return tiers;
  };
  PageTable first(*cache);
  PageTable second(*cache);
  PageTable third(*cache);
  EXPECT_OK(first.Grow(3 * kPagePositions));
  EXPECT_OK(second.Grow(3 * kPagePositions));
  EXPECT_OK(third.Grow(3 * kPagePositions));
  EXPECT_EQ(tiers_of(first), std::vector<Tier>(3, Tier::kDevice));
  EXPECT_EQ(tiers_of(second), std::vector<Tier>(3, Tier::kHost));
  EXPECT_EQ(tiers_of(third), std::vector<Tier>(3, Tier::kDisk));
  EXPECT_OK(first.Grow(6 * kPagePositions));  // one more on the device, then where most is free
  EXPECT_EQ(tiers_of(first)[3], Tier::kDevice);
  EXPECT_EQ(tiers_of(first)[4], Tier::kDisk);
  EXPECT_EQ(cache->free_pages(), 4);
}

TEST(KvTiersTest, PagesOnDiskLieApartByLayerAndId) {
  const KvLayers layers = Layers("fff", 0);
  Pool pool("host", 4096);
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto cache,
                       KvCache::Create(pool, pool, folder.path(), kLayout, layers, {.disk = 5}));
  std::set<int64_t> offsets;
  for (int64_t slot = 0; slot < 3; ++slot) {
    for (int32_t id = 0; id < 5; ++id) {
      const int64_t offset = cache->DiskOffset(slot, id);
      EXPECT_EQ(offset % kDiskAlignment, 0);
      EXPECT_LE(offset + kLayout.page_bytes(), cache->file()->bytes());
      offsets.insert(offset / kLayout.page_bytes());
    }
  }
  EXPECT_EQ(offsets.size(), 15U);
}

}  // namespace
}  // namespace nightshift
