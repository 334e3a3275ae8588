// KvCache and PageTable: keys and values of all held sequences, in pages of 32 positions.
//
// A page id names one stretch of 32 positions in several layers (kv_layers.h); the page of one
// layer (kernels/kv_page.h) is one of those that it stands for. Budgets count page ids: for a model
// whose layers all keep every position, 10 of them hold 320 positions of a sequence.
//
// A page may be in several tables, which all begin with the same tokens, and counts once. Only whole
// pages are shared, so nobody writes to a page that another reads. A page that no table holds is
// free; if it was offered, what it holds can still be taken until the page is given to somebody
// else. Offered pages are given last, those that have been free for longest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/memory/kv_layers.h"
#include "engine/memory/pool.h"
#include "kernels/kv_page.h"

namespace nightshift {

// A page whose keys and values others may take, and how often it had been given when it was offered:
// it holds them as long as that has not changed.
struct OfferedPage {
  int32_t id = 0;
  uint64_t given = 0;
};

// The pages of one stretch of a sequence, for others that begin with the same tokens.
struct OfferedStretch {
  std::vector<OfferedPage> full;
  std::vector<OfferedPage> sliding;  // empty when they had been dropped
};

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
  int64_t free_pages() const { return static_cast<int64_t>(free_.size() + free_offered_.size()); }
  // Whether all of the pages still hold what they were offered with.
  bool AreThere(std::span<const OfferedPage> pages) const;

 private:
  friend class PageTable;
  KvCache(Buffer arena, const KvPageLayout& layout, const KvLayers& layers, int64_t num_pages);

  struct PageState {
    uint64_t given = 0;  // how often
    int64_t holders = 0;
    bool is_offered = false;
    uint64_t freed = 0;  // when, counted in pages freed
  };
  PageState& page(int32_t id) { return pages_[static_cast<size_t>(id)]; }

  // A free page, of which there is one, for one holder.
  int32_t Give();
  void AddHolder(int32_t id);
  void RemoveHolder(int32_t id);

  Buffer arena_;
  KvPageLayout layout_;
  KvLayers layers_;
  int64_t num_pages_;
  std::vector<PageState> pages_;  // by id
  std::vector<int32_t> free_;  // the last one is given next
  std::set<std::pair<uint64_t, int32_t>> free_offered_;  // {freed, id}; given when free_ is empty
  uint64_t num_freed_ = 0;
};

// The pages of one sequence; lets go of them when destroyed. The cache must outlive it.
class PageTable {
 public:
  explicit PageTable(KvCache& cache) : cache_(&cache) {}
  ~PageTable() { Clear(); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Takes pages until `positions` fit; none when it fails.
  // Errors: RESOURCE_EXHAUSTED with asked, free and budget.
  absl::Status Grow(int64_t positions);
  // Lets go of what no query from `position` on sees: pages of sliding layers behind its window.
  void DropBehind(int64_t position);
  void Clear();

  // The pages of a stretch whose positions are all stored and will not change.
  OfferedStretch Offer(int64_t stretch);
  // How many of `offered`, which follow the table's stretches, can be taken: the longest run from
  // the first on of which the next query finds all pages that it sees.
  int64_t CountTakeable(std::span<const OfferedStretch* const> offered) const;
  // Grows by pages of others; all of them can be taken. Drops behind their end.
  void Take(std::span<const OfferedStretch* const> offered);

  // The page of positions from 32 * stretch on at a layer; nullptr once it is given back.
  std::byte* Page(int64_t layer, int64_t stretch) const;
  // Stretches of positions that the table has grown to.
  int64_t num_stretches() const { return num_stretches_; }
  // Page ids that it holds.
  int64_t num_pages() const { return num_pages_; }
  // Of these, those not yet marked in `seen` (by id), which marks them.
  int64_t CountUnseen(std::vector<bool>& seen) const;

 private:
  static constexpr int32_t kNoPage = -1;

  KvCache* cache_;
  std::vector<int32_t> ids_[2];  // [stretches][ids of a stretch], of full and of sliding layers
  int64_t num_stretches_ = 0;
  int64_t num_dropped_ = 0;  // stretches from the first on, of sliding layers
  int64_t num_pages_ = 0;
};

}  // namespace nightshift
