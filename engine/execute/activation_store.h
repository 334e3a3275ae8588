// ActivationStore: where the hidden rows of a sweep lie between its layers.
//
// Batches are given places in order: on the device as far as its rows go, then on the host, then on
// disk. A batch whose rows do not lie on the device is computed in a staging slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/io/disk_file.h"
#include "engine/memory/pool.h"
#include "engine/schedule/sweep_schedule.h"
#include "engine/schedule/tier.h"
#include "kernels/tensor_view.h"

namespace nightshift {

// Rows that each tier holds.
struct ActivationRows {
  int64_t device = 0;
  int64_t host = 0;
  int64_t disk = 0;

  bool all_on_device() const { return host == 0 && disk == 0; }
};

struct ActivationStoreOptions {
  // Together at least those of a sweep, and of a batch more for each tier but the last one used.
  ActivationRows rows;
  int64_t width = 0;  // E
  int64_t max_batch_rows = 0;
  int64_t max_batches = 0;  // of a sweep
  size_t num_slots = 2;
  bool unified_memory = true;
};

// Used by one thread.
class ActivationStore {
 public:
  static int64_t DeviceBytes(const ActivationStoreOptions& options);
  static int64_t HostBytes(const ActivationStoreOptions& options);
  static int64_t DiskBytes(const ActivationStoreOptions& options);

  // `folder` is where rows on disk lie. Errors: RESOURCE_EXHAUSTED (pool), UNAVAILABLE (disk full).
  static absl::StatusOr<std::unique_ptr<ActivationStore>> Create(
      const ActivationStoreOptions& options, const std::string& folder, Pool& device_pool,
      Pool& host_pool);

  // Gives each batch of a sweep its place.
  void Assign(std::span<const Batch> batches);
  Tier TierOf(size_t batch) const { return places_[batch].tier; }
  // Bytes that cross tiers for the batch, each time.
  int64_t BatchBytes(size_t batch) const { return places_[batch].bytes; }

  // The rows [T, E] while the batch is computed: where they lie, or in a slot.
  MatrixView Rows(size_t batch, size_t slot) const;
  // All rows of the sweep, when all lie on the device.
  MatrixView AllRows(int64_t rows) const;

  // The memory of a batch's rows in a slot of the device, in the host's memory (its place there, or
  // a slot that the disk is read into), and its place on disk.
  std::span<std::byte> OnDevice(size_t batch, size_t slot) const;
  std::span<std::byte> OnHost(size_t batch, size_t slot) const;
  int64_t DiskOffset(size_t batch) const { return places_[batch].offset; }
  const DiskFile* file() const { return file_.get(); }
  // The memory that the disk reads into and writes from; empty without rows on disk.
  std::span<std::byte> transfer_memory() const {
    return file_ == nullptr ? std::span<std::byte>()
                            : (options_.unified_memory ? device_slots_ : host_slots_).bytes();
  }

 private:
  explicit ActivationStore(const ActivationStoreOptions& options) : options_(options) {}

  struct Place {
    Tier tier = Tier::kDevice;
    int64_t offset = 0;  // bytes, in its tier
    int64_t rows = 0;
    int64_t bytes = 0;
  };

  int64_t row_bytes() const;
  int64_t slot_bytes() const;

  const ActivationStoreOptions options_;
  Buffer device_;
  Buffer host_;
  Buffer device_slots_;
  Buffer host_slots_;
  std::unique_ptr<DiskFile> file_;
  std::vector<Place> places_;
};

}  // namespace nightshift
