#include "engine/execute/kv_staging.h"

#include <algorithm>
#include <map>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

template <typename Copies>
int64_t TotalBytes(const Copies& copies) {
  int64_t total = 0;
  for (const auto& copy : copies) {
    if constexpr (requires { copy.memory; }) {
      total += static_cast<int64_t>(copy.memory.size());
    } else {
      total += static_cast<int64_t>(copy.bytes);
    }
  }
  return total;
}

// Joins what follows on the disk and in memory, so that the disk gets few large transfers.
void AddDiskCopy(std::vector<DiskCopy>& copies, int64_t offset, std::span<std::byte> memory) {
  if (!copies.empty()) {
    DiskCopy& last = copies.back();
    if (last.offset + static_cast<int64_t>(last.memory.size()) == offset &&
        last.memory.data() + last.memory.size() == memory.data()) {
      last.memory = {last.memory.data(), last.memory.size() + memory.size()};
      return;
    }
  }
  copies.push_back({offset, memory});
}

bool AllBesideDevice(const KvCache& cache, const PageTable& pages, int64_t layer, int64_t count) {
  for (int64_t stretch = 0; stretch < count; ++stretch) {
    const std::optional<PagePlace> place = pages.PlaceOf(layer, stretch);
    if (place.has_value() && cache.TierOf(place->id) == Tier::kDevice) {
      return false;
    }
  }
  return true;
}

}  // namespace

KvMoves StagedLayer::moves() const {
  return {.read_bytes = TotalBytes(reads),
          .upload_bytes = TotalBytes(uploads),
          .download_bytes = TotalBytes(downloads),
          .write_bytes = TotalBytes(writes)};
}

int64_t KvStaging::DeviceBytes(const KvPageLayout& layout, const KvStagingOptions& options) {
  return static_cast<int64_t>(options.num_slots) * options.pages_per_slot * layout.page_bytes();
}

int64_t KvStaging::HostBytes(const KvPageLayout& layout, const KvStagingOptions& options) {
  return options.unified_memory || !options.has_disk ? 0 : DeviceBytes(layout, options);
}

absl::StatusOr<std::unique_ptr<KvStaging>> KvStaging::Create(const KvCache& cache,
                                                             const KvStagingOptions& options,
                                                             Pool& device_pool, Pool& host_pool) {
  std::unique_ptr<KvStaging> staging(new KvStaging(cache, options));
  if (const int64_t bytes = DeviceBytes(cache.layout(), options); bytes > 0) {
    ASSIGN_OR_RETURN(staging->device_slots_, device_pool.Reserve(bytes, "kv pages of batches"));
  }
  if (const int64_t bytes = HostBytes(cache.layout(), options); bytes > 0) {
    ASSIGN_OR_RETURN(staging->host_slots_,
                     host_pool.Reserve(bytes, "kv pages on their way to and from the disk"));
  }
  return staging;
}

// Fills one StagedLayer.
class KvStaging::Stager {
 public:
  Stager(const KvStaging& staging, int64_t layer, size_t slot)
      : staging_(staging),
        cache_(staging.cache_),
        layer_(layer),
        slot_(slot),
        page_bytes_(static_cast<size_t>(cache_.layout().page_bytes())) {}

  void AddSpan(const Span& span, int64_t batch_first_row, const Sequence& sequence) {
    const PageTable& pages = sequence.pages;
    const int64_t count = PagesFor(span.first_position + span.num_tokens);
    CHECK_LE(count, pages.num_stretches());
    const bool on_host = staging_.options_.host_attention && span.num_tokens == 1 &&
                         AllBesideDevice(cache_, pages, layer_, count);
    const size_t first_page = result_.pages.size();
    for (int64_t stretch = 0; stretch < count; ++stretch) {
      const std::optional<PagePlace> place = pages.PlaceOf(layer_, stretch);
      if (!place.has_value()) {
        result_.pages.push_back(nullptr);
        continue;
      }
      const bool has_earlier = stretch * kPagePositions < span.first_position;
      const bool has_new = (stretch + 1) * kPagePositions > span.first_position;
      result_.pages.push_back(PageFor(*place, has_earlier, has_new, on_host));
    }
    (on_host ? result_.host_spans : result_.device_spans)
        .push_back({.first_row = span.first_row - batch_first_row,
                    .num_rows = span.num_tokens,
                    .first_position = span.first_position,
                    .sparse_from = sequence.first_decoded(),
                    .pages = {result_.pages.data() + first_page, static_cast<size_t>(count)}});
  }
  void ReservePages(size_t count) { result_.pages.reserve(count); }  // spans keep addresses in it
  StagedLayer Take() { return std::move(result_); }

 private:
  // Where attention finds the page; lists how it gets there and back.
  std::byte* PageFor(const PagePlace& page, bool has_earlier, bool has_new, bool on_host) {
    const auto [id, kind_slot] = page;
    const Tier tier = cache_.TierOf(id);
    if (tier == Tier::kDevice || (tier == Tier::kHost && on_host)) {
      return cache_.Page(kind_slot, id);
    }
    // A page that several spans share is staged once; nobody writes to it.
    const auto [place, is_first] = places_.try_emplace({id, on_host}, nullptr);
    if (!is_first) {
      return place->second;
    }
    const bool unified = staging_.options_.unified_memory;
    std::byte* at = PlaceIn(on_host ? staging_.host_slots_ : staging_.device_slots_);
    place->second = at;
    if (tier == Tier::kHost) {
      std::byte* home = cache_.Page(kind_slot, id);
      Copy(has_earlier, home, at, result_.uploads);
      Copy(has_new, at, home, result_.downloads);
    } else {
      std::byte* on_way = on_host || unified ? at : PlaceIn(staging_.host_slots_);
      const int64_t offset = cache_.DiskOffset(kind_slot, id);
      if (has_earlier) {
        AddDiskCopy(result_.reads, offset, {on_way, page_bytes_});
      }
      if (has_new) {
        AddDiskCopy(result_.writes, offset, {on_way, page_bytes_});
      }
      if (on_way != at) {
        Copy(has_earlier, on_way, at, result_.uploads);
        Copy(has_new, at, on_way, result_.downloads);
      }
    }
    ++next_place_;
    return at;
  }

  std::byte* PlaceIn(const Buffer& slots) const {
    const size_t pages = static_cast<size_t>(staging_.options_.pages_per_slot);
    CHECK_LT(next_place_, pages);
    return slots.bytes().data() + (slot_ * pages + next_place_) * page_bytes_;
  }
  void Copy(bool wanted, const std::byte* from, std::byte* to, std::vector<MemoryCopy>& copies) {
    if (wanted) {
      copies.push_back({from, to, page_bytes_});
    }
  }

  const KvStaging& staging_;
  const KvCache& cache_;
  const int64_t layer_;
  const size_t slot_;
  const size_t page_bytes_;
  size_t next_place_ = 0;
  std::map<std::pair<int32_t, bool>, std::byte*> places_;
  StagedLayer result_;
};

StagedLayer KvStaging::Stage(int64_t layer, size_t slot, const Batch& batch,
                             std::span<const std::unique_ptr<Sequence>> sequences) const {
  Stager stager(*this, layer, slot);
  size_t num_pages = 0;
  for (const Span& span : batch.spans) {
    num_pages += static_cast<size_t>(PagesFor(span.first_position + span.num_tokens));
  }
  stager.ReservePages(num_pages);
  for (const Span& span : batch.spans) {
    stager.AddSpan(span, batch.first_row, *sequences[span.request]);
  }
  return stager.Take();
}

}  // namespace nightshift
