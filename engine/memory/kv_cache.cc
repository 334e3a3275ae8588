#include "engine/memory/kv_cache.h"

#include <algorithm>
#include <iterator>
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
    : arena_(std::move(arena)), layout_(layout), layers_(layers), num_pages_(num_pages) {
  free_.reserve(static_cast<size_t>(num_pages));
  for (int64_t id = num_pages - 1; id >= 0; --id) {
    free_.push_back(static_cast<int32_t>(id));
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
      ids_[sliding ? 1 : 0].push_back(cache_->free_.back());
      cache_->free_.pop_back();
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
    cache_->free_.push_back(std::exchange(ids_[1][static_cast<size_t>(i)], kNoPage));
    --num_pages_;
  }
  num_dropped_ = std::max(num_dropped_, end);
}

void PageTable::Clear() {
  for (std::vector<int32_t>& ids : ids_) {
    std::copy_if(ids.rbegin(), ids.rend(), std::back_inserter(cache_->free_),
                 [](int32_t id) { return id != kNoPage; });
    ids.clear();
  }
  num_stretches_ = num_dropped_ = num_pages_ = 0;
}

std::byte* PageTable::Page(int64_t layer, int64_t stretch) const {
  const KvLayers& layers = cache_->layers_;
  const KvLayers::Place& place = layers.place(layer);
  const int64_t index = stretch * layers.ids_per_stretch(place.slides) + place.unit;
  const int32_t id = ids_[place.slides ? 1 : 0][static_cast<size_t>(index)];
  return id == kNoPage ? nullptr : cache_->Page(place.slot, id);
}

}  // namespace nightshift
