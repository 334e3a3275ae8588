// KvStaging: which pages of a batch cross tiers at a layer, and where attention finds all of them.
//
// Pages that do not lie on the device pass through staging slots, each owned by one (layer, batch):
// brought in where they hold earlier positions, taken back where the batch stores some. A page from
// disk has a place in the host's slot and, unless attention runs on the host, one in the device's;
// with unified memory the only slot is the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/execute/sequence.h"
#include "engine/memory/kv_cache.h"
#include "engine/memory/pool.h"
#include "engine/schedule/sweep_schedule.h"
#include "engine/schedule/sweep_steps.h"
#include "kernels/ops.h"

namespace nightshift {

struct MemoryCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
};

struct DiskCopy {
  int64_t offset = 0;
  std::span<std::byte> memory;
};

// What one (layer, batch) needs. Rows of spans count from the batch's first.
struct StagedLayer {
  std::vector<std::byte*> pages;  // owns what the spans point to
  std::vector<AttentionSpan> device_spans;
  std::vector<AttentionSpan> host_spans;  // attention of these runs on the host
  std::vector<DiskCopy> reads;
  std::vector<MemoryCopy> uploads;
  std::vector<MemoryCopy> downloads;
  std::vector<DiskCopy> writes;

  KvMoves moves() const;
};

struct KvStagingOptions {
  int64_t pages_per_slot = 0;  // of one layer; 0: everything lies on the device
  size_t num_slots = 2;
  bool unified_memory = true;
  bool has_disk = false;
  // Decoding requests whose pages all lie beside the device attend there.
  bool host_attention = false;
};

// Used by one thread. The cache must outlive it.
class KvStaging {
 public:
  static int64_t DeviceBytes(const KvPageLayout& layout, const KvStagingOptions& options);
  static int64_t HostBytes(const KvPageLayout& layout, const KvStagingOptions& options);

  // Errors: RESOURCE_EXHAUSTED (pool).
  static absl::StatusOr<std::unique_ptr<KvStaging>> Create(const KvCache& cache,
                                                           const KvStagingOptions& options,
                                                           Pool& device_pool, Pool& host_pool);

  // The memory that the disk reads into and writes from; empty without pages on disk.
  std::span<std::byte> transfer_memory() const {
    return !options_.has_disk ? std::span<std::byte>()
                              : (options_.unified_memory ? device_slots_ : host_slots_).bytes();
  }

  StagedLayer Stage(int64_t layer, size_t slot, const Batch& batch,
                    std::span<const std::unique_ptr<Sequence>> sequences) const;

 private:
  KvStaging(const KvCache& cache, const KvStagingOptions& options)
      : cache_(cache), options_(options) {}

  class Stager;

  const KvCache& cache_;
  const KvStagingOptions options_;
  Buffer device_slots_;
  Buffer host_slots_;
};

}  // namespace nightshift
