// KvCache and PageTable: keys and values of all held sequences, in pages of 32 positions.
//
// A page id names one stretch of 32 positions in several layers (kv_layers.h); the page of one
// layer (kernels/kv_page.h) is one of those that it stands for. Budgets count page ids: for a model
// whose layers all keep every position, 10 of them hold 320 positions of a sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/memory/kv_layers.h"
#include "engine/memory/pool.h"
#include "kernels/kv_page.h"

namespace nightshift {

// Owns the arena of pages. Used by one thread (the runner).
class KvCache {
 public:
  // Carves the arena from `pool`. num_pages >= 1. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Pool& pool, const KvPageLayout& layout,
                                                         const KvLayers& layers, int64_t num_pages);

  // Bytes of one page id, over all layers that it stands for.
  static int64_t PageBytes(const KvPageLayout& layout, const KvLayers& layers) {
    return layout.page_bytes() * layers.unit_layers();
  }

  // The page of layer `slot` of those that the id stands for.
  std::byte* Page(int64_t slot, int32_t page_id) const {
    return arena_.bytes().data() + (slot * num_pages_ + page_id) * layout_.page_bytes();
  }
  const KvLayers& layers() const { return layers_; }
  const KvPageLayout& layout() const { return layout_; }
  int64_t num_pages() const { return num_pages_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

 private:
  friend class PageTable;
  KvCache(Buffer arena, const KvPageLayout& layout, const KvLayers& layers, int64_t num_pages);

  Buffer arena_;
  KvPageLayout layout_;
  KvLayers layers_;
  int64_t num_pages_;
  std::vector<int32_t> free_;  // the last one is given next
};

// The pages of one sequence; gives them back when destroyed. The cache must outlive it.
class PageTable {
 public:
  explicit PageTable(KvCache& cache) : cache_(&cache) {}
  ~PageTable() { Clear(); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Takes pages until `positions` fit; none when it fails.
  // Errors: RESOURCE_EXHAUSTED with asked, free and budget.
  absl::Status Grow(int64_t positions);
  // Gives back what no query from `position` on sees: pages of sliding layers behind its window.
  void DropBehind(int64_t position);
  void Clear();

  // The page of positions from 32 * stretch on at a layer; nullptr once it is given back.
  std::byte* Page(int64_t layer, int64_t stretch) const;
  // Stretches of positions that the table has grown to.
  int64_t num_stretches() const { return num_stretches_; }
  // Page ids that it holds.
  int64_t num_pages() const { return num_pages_; }

 private:
  static constexpr int32_t kNoPage = -1;

  KvCache* cache_;
  std::vector<int32_t> ids_[2];  // [stretches][ids of a stretch], of full and of sliding layers
  int64_t num_stretches_ = 0;
  int64_t num_dropped_ = 0;  // stretches from the first on, of sliding layers
  int64_t num_pages_ = 0;
};

}  // namespace nightshift
