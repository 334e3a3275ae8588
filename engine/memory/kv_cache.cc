#include "engine/memory/kv_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Pool& pool, const KvPageLayout& layout,
                                                         int64_t num_layers, int64_t num_pages) {
  CHECK_GE(num_layers, 1);
  CHECK_GE(num_pages, 1);
  ASSIGN_OR_RETURN(Buffer arena,
                   pool.Reserve(PageBytes(layout, num_layers) * num_pages, "kv pages"));
  return std::unique_ptr<KvCache>(new KvCache(std::move(arena), layout, num_pages));
}

KvCache::KvCache(Buffer arena, const KvPageLayout& layout, int64_t num_pages)
    : arena_(std::move(arena)), layout_(layout), num_pages_(num_pages) {
  free_.reserve(static_cast<size_t>(num_pages));
  for (int64_t id = num_pages - 1; id >= 0; --id) {
    free_.push_back(static_cast<int32_t>(id));
  }
}

absl::Status PageTable::Grow(int64_t positions) {
  const int64_t asked = PagesFor(positions) - num_pages();
  if (asked > cache_->free_pages()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("grow a sequence to ", positions, " positions: asked ", asked,
                     " kv pages, free ", cache_->free_pages(), ", budget ", cache_->num_pages()));
  }
  for (int64_t i = 0; i < asked; ++i) {
    page_ids_.push_back(cache_->free_.back());
    cache_->free_.pop_back();
  }
  return absl::OkStatus();
}

void PageTable::Clear() {
  cache_->free_.insert(cache_->free_.end(), page_ids_.rbegin(), page_ids_.rend());
  page_ids_.clear();
}

}  // namespace nightshift
