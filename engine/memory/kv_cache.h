// KvCache and PageTable: keys and values of all held sequences, in pages of 32 positions.
//
// A page id names one stretch of 32 positions in several layers (kv_layers.h); the page of one
// layer (kernels/kv_page.h) is one of those that it stands for. Budgets count page ids: for a model
// whose layers all keep every position, 10 of them hold 320 positions of a sequence.
//
// A page lies in one tier for as long as it is held; ids ascend from tier to tier. A table takes
// its pages from one tier, its home, as long as that has some, so that a request's keys lie
// together.
//
// A page may be in several tables, which all begin with the same tokens, and counts once. Only
// whole pages are shared, so nobody writes to a page that another reads. A page that no table holds
// is free; if it was offered, what it holds can still be taken until the page is given to somebody
// else. Offered pages are given last, those that have been free for longest first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/io/disk_file.h"
#include "engine/memory/kv_layers.h"
#include "engine/memory/pool.h"
#include "engine/schedule/tier.h"
#include "kernels/kv_page.h"

namespace nightshift {

// A page whose keys and values others may take, and how often it had been given when it was
// offered: it holds them as long as that has not changed.
struct OfferedPage {
  int32_t id = 0;
  uint64_t given = 0;
};

// The pages of one stretch of a sequence, for others that begin with the same tokens.
struct OfferedStretch {
  std::vector<OfferedPage> full;
  std::vector<OfferedPage> sliding;  // empty when they had been dropped
};

// Page ids of each tier.
struct KvPages {
  int64_t device = 0;
  int64_t host = 0;
  int64_t disk = 0;

  int64_t total() const { return device + host + disk; }
};

// Owns the memory of pages. Used by one thread (the runner), but for Page, DiskOffset and file.
class KvCache {
 public:
  // Carves arenas from the pools, at least one page in all; pages on disk lie in a file in
  // `spill_folder`. Errors: RESOURCE_EXHAUSTED (pools), UNAVAILABLE (disk full).
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Pool& device_pool, Pool& host_pool,
                                                         const std::string& spill_folder,
                                                         const KvPageLayout& layout,
                                                         const KvLayers& layers,
                                                         const KvPages& pages);

  // Bytes of one page id, over all layers that it stands for.
  static int64_t PageBytes(const KvPageLayout& layout, const KvLayers& layers) {
    return layout.page_bytes() * layers.unit_layers();
  }

  Tier TierOf(int32_t page_id) const {
    return page_id < pages_of_.device                    ? Tier::kDevice
           : page_id < pages_of_.device + pages_of_.host ? Tier::kHost
                                                         : Tier::kDisk;
  }
  // The page of layer `slot` of those that the id stands for; of an id in memory.
  std::byte* Page(int64_t slot, int32_t page_id) const;
  // The same in the file of those on disk.
  int64_t DiskOffset(int64_t slot, int32_t page_id) const;
  const DiskFile* file() const { return file_.get(); }
  const KvLayers& layers() const { return layers_; }
  const KvPageLayout& layout() const { return layout_; }
  const KvPages& pages() const { return pages_of_; }
  int64_t num_pages() const { return pages_of_.total(); }
  int64_t free_pages() const { return num_free_; }
  // Whether all of the pages still hold what they were offered with.
  bool AreThere(std::span<const OfferedPage> pages) const;

 private:
  friend class PageTable;
  KvCache(const KvPageLayout& layout, const KvLayers& layers, const KvPages& pages);

  struct PageState {
    uint64_t given = 0;  // how often
    int64_t holders = 0;
    bool is_offered = false;
    uint64_t freed = 0;  // when, counted in pages freed
  };
  PageState& page(int32_t id) { return pages_[static_cast<size_t>(id)]; }

  // Free pages of one tier.
  struct FreePages {
    std::vector<int32_t> ids;                        // the last one is given next
    std::set<std::pair<uint64_t, int32_t>> offered;  // {freed, id}; given when there are no others

    int64_t count() const { return static_cast<int64_t>(ids.size() + offered.size()); }
  };
  FreePages& FreeIn(Tier tier) { return free_[static_cast<size_t>(tier)]; }
  FreePages& FreeOf(int32_t id) { return FreeIn(TierOf(id)); }
  int64_t PagesIn(Tier tier) const;
  // The tier of which the largest part is free.
  Tier Emptiest() const;

  // A free page, of which there is one, for one holder: from `home` if that has some.
  int32_t Give(Tier home);
  void AddHolder(int32_t id);
  void RemoveHolder(int32_t id);

  Buffer device_;
  Buffer host_;
  std::unique_ptr<DiskFile> file_;
  KvPageLayout layout_;
  KvLayers layers_;
  KvPages pages_of_;
  std::vector<PageState> pages_;  // by id
  std::array<FreePages, 3> free_;
  int64_t num_free_ = 0;
  uint64_t num_freed_ = 0;
};

// Where a stretch of a sequence lies at one layer: layer `slot` of those that the id stands for.
struct PagePlace {
  int32_t id = 0;
  int64_t slot = 0;
};

// The pages of one sequence; lets go of them when destroyed. The cache must outlive it.
//
// Of a sequence whose positions are all computed in one sweep and read no more after it, one layer
// at a time is enough: every layer overwrites the one before. Its stretches then fill all layers of
// a page id, one after another.
class PageTable {
 public:
  explicit PageTable(KvCache& cache) : cache_(&cache) {}
  ~PageTable() { Clear(); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // Takes pages until `positions` fit; none when it fails.
  // Errors: RESOURCE_EXHAUSTED with asked, free and budget.
  absl::Status Grow(int64_t positions);
  // The same for a table that is empty, of one layer at a time.
  absl::Status GrowOneLayer(int64_t positions);
  // Ids that GrowOneLayer takes.
  static int64_t OneLayerPages(int64_t positions, const KvLayers& layers) {
    return (PagesFor(positions) + layers.unit_layers() - 1) / layers.unit_layers();
  }
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

  // Of positions from 32 * stretch on at a layer; nothing once the page is given back.
  std::optional<PagePlace> PlaceOf(int64_t layer, int64_t stretch) const;
  // Stretches of positions that the table has grown to.
  int64_t num_stretches() const { return num_stretches_; }
  // Page ids that it holds.
  int64_t num_pages() const { return num_pages_; }
  // Of these, those not yet marked in `seen` (by id), which marks them.
  int64_t CountUnseen(std::vector<bool>& seen) const;

 private:
  static constexpr int32_t kNoPage = -1;

  absl::Status CheckFree(int64_t positions, int64_t asked) const;

  KvCache* cache_;
  bool one_layer_ = false;       // what ids_[0] then has is of whatever layer is computed
  std::optional<Tier> home_;     // chosen when the first page is taken
  std::vector<int32_t> ids_[2];  // [stretches][ids of a stretch], of full and of sliding layers
  int64_t num_stretches_ = 0;
  int64_t num_dropped_ = 0;  // stretches from the first on, of sliding layers
  int64_t num_pages_ = 0;
};

}  // namespace nightshift
