#include "engine/memory/kv_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Pool& device_pool, Pool& host_pool,
                                                         const std::string& spill_folder,
                                                         const KvPageLayout& layout,
                                                         const KvLayers& layers,
                                                         const KvPages& pages) {
  CHECK_GE(pages.total(), 1);
  CHECK_LE(pages.total(), INT32_MAX);
  const int64_t page_bytes = PageBytes(layout, layers);
  std::unique_ptr<KvCache> cache(new KvCache(layout, layers, pages));
  if (pages.device > 0) {
    ASSIGN_OR_RETURN(cache->device_, device_pool.Reserve(page_bytes * pages.device, "kv pages"));
  }
  if (pages.host > 0) {
    ASSIGN_OR_RETURN(cache->host_,
                     host_pool.Reserve(page_bytes * pages.host, "kv pages beside the device"));
  }
  if (pages.disk > 0) {
    ASSIGN_OR_RETURN(DiskFile file, DiskFile::CreateSpill(spill_folder, page_bytes * pages.disk));
    cache->file_ = std::make_unique<DiskFile>(std::move(file));
  }
  return cache;
}

KvCache::KvCache(const KvPageLayout& layout, const KvLayers& layers, const KvPages& pages)
    : layout_(layout),
      layers_(layers),
      pages_of_(pages),
      pages_(static_cast<size_t>(pages.total())),
      num_free_(pages.total()) {
  for (int64_t id = pages.total() - 1; id >= 0; --id) {
    FreeOf(static_cast<int32_t>(id)).ids.push_back(static_cast<int32_t>(id));
  }
}

std::byte* KvCache::Page(int64_t slot, int32_t page_id) const {
  const bool on_device = page_id < pages_of_.device;
  const int64_t index = on_device ? page_id : page_id - pages_of_.device;
  const int64_t count = on_device ? pages_of_.device : pages_of_.host;
  return (on_device ? device_ : host_).bytes().data() +
         (slot * count + index) * layout_.page_bytes();
}

int64_t KvCache::DiskOffset(int64_t slot, int32_t page_id) const {
  const int64_t index = page_id - pages_of_.device - pages_of_.host;
  return (slot * pages_of_.disk + index) * layout_.page_bytes();
}

int64_t KvCache::PagesIn(Tier tier) const {
  switch (tier) {
    case Tier::kDevice:
      return pages_of_.device;
    case Tier::kHost:
      return pages_of_.host;
    case Tier::kDisk:
      return pages_of_.disk;
  }
  return 0;
}

Tier KvCache::Emptiest() const {
  Tier emptiest = Tier::kDevice;
  double largest = -1.0;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const double part = static_cast<double>(free_[static_cast<size_t>(tier)].count()) /
                        static_cast<double>(std::max<int64_t>(PagesIn(tier), 1));
    if (part > largest) {
      largest = part;
      emptiest = tier;
    }
  }
  return emptiest;
}

bool KvCache::AreThere(std::span<const OfferedPage> pages) const {
  return std::all_of(pages.begin(), pages.end(), [this](const OfferedPage& offered) {
    return pages_[static_cast<size_t>(offered.id)].given == offered.given;
  });
}

int32_t KvCache::Give(Tier home) {
  CHECK_GT(num_free_, 0);
  FreePages& free = FreeIn(FreeIn(home).count() > 0 ? home : Emptiest());
  int32_t id = 0;
  if (!free.ids.empty()) {
    id = free.ids.back();
    free.ids.pop_back();
  } else {
    id = free.offered.begin()->second;
    free.offered.erase(free.offered.begin());
  }
  --num_free_;
  page(id).is_offered = false;
  page(id).holders = 1;
  ++page(id).given;
  return id;
}

void KvCache::AddHolder(int32_t id) {
  if (page(id).holders++ == 0) {
    FreeOf(id).offered.erase({page(id).freed, id});
    --num_free_;
  }
}

void KvCache::RemoveHolder(int32_t id) {
  if (--page(id).holders > 0) {
    return;
  }
  ++num_free_;
  if (page(id).is_offered) {
    page(id).freed = num_freed_++;
    FreeOf(id).offered.insert({page(id).freed, id});
  } else {
    FreeOf(id).ids.push_back(id);
  }
}

absl::Status PageTable::Grow(int64_t positions) {
  const int64_t stretches = PagesFor(positions) - num_stretches_;
  const int64_t asked = stretches * cache_->layers_.ids_per_stretch();
  RETURN_IF_ERROR(CheckFree(positions, asked));
  if (!home_.has_value()) {
    home_ = cache_->Emptiest();
  }
  for (const bool sliding : {false, true}) {
    const int64_t count = stretches * cache_->layers_.ids_per_stretch(sliding);
    for (int64_t i = 0; i < count; ++i) {
      ids_[sliding ? 1 : 0].push_back(cache_->Give(*home_));
    }
  }
  num_stretches_ += std::max<int64_t>(0, stretches);
  num_pages_ += std::max<int64_t>(0, asked);
  return absl::OkStatus();
}

absl::Status PageTable::GrowOneLayer(int64_t positions) {
  CHECK_EQ(num_stretches_, 0);
  const int64_t asked = OneLayerPages(positions, cache_->layers_);
  RETURN_IF_ERROR(CheckFree(positions, asked));
  for (int64_t i = 0; i < asked; ++i) {
    ids_[0].push_back(cache_->Give(cache_->Emptiest()));
  }
  one_layer_ = true;
  num_stretches_ = PagesFor(positions);
  num_pages_ = asked;
  return absl::OkStatus();
}

absl::Status PageTable::CheckFree(int64_t positions, int64_t asked) const {
  if (asked <= cache_->free_pages()) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("grow a sequence to ", positions, " positions: asked ", asked,
                   " kv pages, free ", cache_->free_pages(), ", budget ", cache_->num_pages()));
}

void PageTable::DropBehind(int64_t position) {
  if (one_layer_) {
    return;
  }
  const int64_t ids_per_stretch = cache_->layers_.ids_per_stretch(/*sliding=*/true);
  const int64_t end = std::min(num_stretches_, cache_->layers_.StretchesBehind(position));
  for (int64_t i = num_dropped_ * ids_per_stretch; i < end * ids_per_stretch; ++i) {
    cache_->RemoveHolder(std::exchange(ids_[1][static_cast<size_t>(i)], kNoPage));
    --num_pages_;
  }
  num_dropped_ = std::max(num_dropped_, end);
}

// The last stretch first: of pages that are offered, the beginnings, which most others have too,
// are then given to somebody else last.
void PageTable::Clear() {
  for (std::vector<int32_t>& ids : ids_) {
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      if (*id != kNoPage) {
        cache_->RemoveHolder(*id);
      }
    }
    ids.clear();
  }
  num_stretches_ = num_dropped_ = num_pages_ = 0;
  one_layer_ = false;
}

OfferedStretch PageTable::Offer(int64_t stretch) {
  CHECK_LT(stretch, num_stretches_);
  OfferedStretch offered;
  for (const bool sliding : {false, true}) {
    if (sliding && stretch < num_dropped_) {
      continue;
    }
    const int64_t count = cache_->layers_.ids_per_stretch(sliding);
    for (int64_t i = stretch * count; i < (stretch + 1) * count; ++i) {
      const int32_t id = ids_[sliding ? 1 : 0][static_cast<size_t>(i)];
      cache_->page(id).is_offered = true;
      (sliding ? offered.sliding : offered.full).push_back({id, cache_->page(id).given});
    }
  }
  return offered;
}

int64_t PageTable::CountTakeable(std::span<const OfferedStretch* const> offered) const {
  const size_t sliding_ids = static_cast<size_t>(cache_->layers_.ids_per_stretch(true));
  int64_t takeable = 0;
  int64_t last_gap = -1;  // the last stretch whose sliding pages are not there
  for (size_t i = 0; i < offered.size() && cache_->AreThere(offered[i]->full); ++i) {
    const int64_t stretch = num_stretches_ + static_cast<int64_t>(i);
    const std::vector<OfferedPage>& sliding = offered[i]->sliding;
    if (sliding.size() < sliding_ids || !cache_->AreThere(sliding)) {
      last_gap = stretch;
    }
    if (last_gap < cache_->layers_.StretchesBehind((stretch + 1) * kPagePositions)) {
      takeable = static_cast<int64_t>(i) + 1;
    }
  }
  return takeable;
}

void PageTable::Take(std::span<const OfferedStretch* const> offered) {
  const int64_t end = num_stretches_ + static_cast<int64_t>(offered.size());
  const int64_t behind = cache_->layers_.StretchesBehind(end * kPagePositions);
  const int64_t sliding_ids = cache_->layers_.ids_per_stretch(/*sliding=*/true);
  DropBehind(end * kPagePositions);
  const auto take = [this](std::span<const OfferedPage> pages, std::vector<int32_t>& ids) {
    for (const OfferedPage& page : pages) {
      cache_->AddHolder(page.id);
      ids.push_back(page.id);
      ++num_pages_;
    }
  };
  for (const OfferedStretch* stretch : offered) {
    take(stretch->full, ids_[0]);
    if (num_stretches_ >= behind) {
      take(stretch->sliding, ids_[1]);
    } else {
      ids_[1].insert(ids_[1].end(), static_cast<size_t>(sliding_ids), kNoPage);
    }
    ++num_stretches_;
  }
  num_dropped_ = std::max(num_dropped_, std::min(behind, num_stretches_));
}

int64_t PageTable::CountUnseen(std::vector<bool>& seen) const {
  int64_t count = 0;
  for (const std::vector<int32_t>& ids : ids_) {
    for (const int32_t id : ids) {
      if (id != kNoPage && !seen[static_cast<size_t>(id)]) {
        seen[static_cast<size_t>(id)] = true;
        ++count;
      }
    }
  }
  return count;
}

std::optional<PagePlace> PageTable::PlaceOf(int64_t layer, int64_t stretch) const {
  const KvLayers& layers = cache_->layers_;
  if (one_layer_) {
    return PagePlace{.id = ids_[0][static_cast<size_t>(stretch / layers.unit_layers())],
                     .slot = stretch % layers.unit_layers()};
  }
  const KvLayers::Place& place = layers.place(layer);
  const int64_t index = stretch * layers.ids_per_stretch(place.slides) + place.unit;
  const int32_t id = ids_[place.slides ? 1 : 0][static_cast<size_t>(index)];
  return id == kNoPage ? std::nullopt : std::optional(PagePlace{.id = id, .slot = place.slot});
}

}  // namespace nightshift
