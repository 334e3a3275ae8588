#include "engine/memory/kv_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Pool& pool, const KvPageLayout& layout,
                                                         const KvLayers& layers,
                                                         int64_t num_pages) {
  CHECK_GE(num_pages, 1);
  CHECK_LE(num_pages, INT32_MAX);
  ASSIGN_OR_RETURN(Buffer arena, pool.Reserve(PageBytes(layout, layers) * num_pages, "kv pages"));
  return std::unique_ptr<KvCache>(new KvCache(std::move(arena), layout, layers, num_pages));
}

KvCache::KvCache(Buffer arena, const KvPageLayout& layout, const KvLayers& layers,
                 int64_t num_pages)
    : arena_(std::move(arena)),
      layout_(layout),
      layers_(layers),
      num_pages_(num_pages),
      pages_(static_cast<size_t>(num_pages)) {
  free_.reserve(static_cast<size_t>(num_pages));
  for (int64_t id = num_pages - 1; id >= 0; --id) {
    free_.push_back(static_cast<int32_t>(id));
  }
}

bool KvCache::AreThere(std::span<const OfferedPage> pages) const {
  return std::all_of(pages.begin(), pages.end(), [this](const OfferedPage& offered) {
    return pages_[static_cast<size_t>(offered.id)].given == offered.given;
  });
}

int32_t KvCache::Give() {
  CHECK_GT(free_pages(), 0);
  int32_t id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    id = free_offered_.begin()->second;
    free_offered_.erase(free_offered_.begin());
  }
  page(id).is_offered = false;
  page(id).holders = 1;
  ++page(id).given;
  return id;
}

void KvCache::AddHolder(int32_t id) {
  if (page(id).holders++ == 0) {
    free_offered_.erase({page(id).freed, id});
  }
}

void KvCache::RemoveHolder(int32_t id) {
  if (--page(id).holders > 0) {
    return;
  }
  if (page(id).is_offered) {
    page(id).freed = num_freed_++;
    free_offered_.insert({page(id).freed, id});
  } else {
    free_.push_back(id);
  }
}

absl::Status PageTable::Grow(int64_t positions) {
  const int64_t stretches = PagesFor(positions) - num_stretches_;
  const int64_t asked = stretches * cache_->layers_.ids_per_stretch();
  if (asked > cache_->free_pages()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("grow a sequence to ", positions, " positions: asked ", asked,
                     " kv pages, free ", cache_->free_pages(), ", budget ", cache_->num_pages()));
  }
  for (const bool sliding : {false, true}) {
    const int64_t count = stretches * cache_->layers_.ids_per_stretch(sliding);
    for (int64_t i = 0; i < count; ++i) {
      ids_[sliding ? 1 : 0].push_back(cache_->Give());
    }
  }
  num_stretches_ += std::max<int64_t>(0, stretches);
  num_pages_ += std::max<int64_t>(0, asked);
  return absl::OkStatus();
}

void PageTable::DropBehind(int64_t position) {
  const int64_t ids_per_stretch = cache_->layers_.ids_per_stretch(/*sliding=*/true);
  const int64_t end = std::min(num_stretches_, cache_->layers_.StretchesBehind(position));
  for (int64_t i = num_dropped_ * ids_per_stretch; i < end * ids_per_stretch; ++i) {
    cache_->RemoveHolder(std::exchange(ids_[1][static_cast<size_t>(i)], kNoPage));
    --num_pages_;
  }
  num_dropped_ = std::max(num_dropped_, end);
}

// The last stretch first: of pages that are offered, the beginnings, which most others have too, are
// then given to somebody else last.
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

std::byte* PageTable::Page(int64_t layer, int64_t stretch) const {
  const KvLayers& layers = cache_->layers_;
  const KvLayers::Place& place = layers.place(layer);
  const int64_t index = stretch * layers.ids_per_stretch(place.slides) + place.unit;
  const int32_t id = ids_[place.slides ? 1 : 0][static_cast<size_t>(index)];
  return id == kNoPage ? nullptr : cache_->Page(place.slot, id);
}

}  // namespace nightshift
