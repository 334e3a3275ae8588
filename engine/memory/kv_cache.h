// KvCache and PageTable: keys and values of all held sequences, in pages of 32 positions.
//
// A page id names one stretch of 32 positions over all layers; the page of one layer
// (kernels/kv_page.h) is Page(layer, id). Positions are counted in page ids everywhere: a budget of
// 10 pages holds 320 positions of a sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/memory/pool.h"
#include "kernels/kv_page.h"

namespace nightshift {

// Pages that `positions` positions of one sequence take.
constexpr int64_t PagesFor(int64_t positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// Owns the arena of pages. Used by one thread (the runner).
class KvCache {
 public:
  // Carves the arena from `pool`. num_layers, num_pages >= 1. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Pool& pool, const KvPageLayout& layout,
                                                         int64_t num_layers, int64_t num_pages);

  // Bytes of one page id, over all layers.
  static int64_t PageBytes(const KvPageLayout& layout, int64_t num_layers) {
    return layout.page_bytes() * num_layers;
  }

  std::byte* Page(int64_t layer, int32_t page_id) const {
    return arena_.bytes().data() + (layer * num_pages_ + page_id) * layout_.page_bytes();
  }
  const KvPageLayout& layout() const { return layout_; }
  int64_t num_pages() const { return num_pages_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

 private:
  friend class PageTable;
  KvCache(Buffer arena, const KvPageLayout& layout, int64_t num_pages);

  Buffer arena_;
  KvPageLayout layout_;
  int64_t num_pages_;
  std::vector<int32_t> free_;  // the last one is given next
};

// The pages of one sequence, in order of position; gives them back when destroyed.
// The cache must outlive it.
class PageTable {
 public:
  explicit PageTable(KvCache& cache) : cache_(&cache) {}
  ~PageTable() { Clear(); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Takes pages until `positions` fit; none when it fails.
  // Errors: RESOURCE_EXHAUSTED with asked, free and budget.
  absl::Status Grow(int64_t positions);
  void Clear();

  std::span<const int32_t> page_ids() const { return page_ids_; }
  int64_t num_pages() const { return static_cast<int64_t>(page_ids_.size()); }

 private:
  KvCache* cache_;
  std::vector<int32_t> page_ids_;
};

}  // namespace nightshift
