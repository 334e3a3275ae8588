#include "engine/execute/activation_store.h"

#include <algorithm>

#include "engine/model/scratch.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

int64_t RowBytes(int64_t width) {
  return RowStride(width) * FloatBytes(DType::kF32);
}

// Whole blocks of the disk, so that each batch begins with one.
int64_t SlotBytes(const ActivationStoreOptions& options) {
  return RoundUp(options.max_batch_rows * RowBytes(options.width), kDiskAlignment);
}

int64_t AllSlotBytes(const ActivationStoreOptions& options) {
  return static_cast<int64_t>(options.num_slots) * SlotBytes(options);
}

// Each batch begins at a whole block.
int64_t TierBytes(int64_t rows, const ActivationStoreOptions& options) {
  return rows == 0 ? 0
                   : RoundUp(rows * RowBytes(options.width), kDiskAlignment) +
                         options.max_batches * kDiskAlignment;
}

}  // namespace

int64_t ActivationStore::DeviceBytes(const ActivationStoreOptions& options) {
  return options.rows.all_on_device()
             ? options.rows.device * RowBytes(options.width)
             : TierBytes(options.rows.device, options) + AllSlotBytes(options);
}

int64_t ActivationStore::HostBytes(const ActivationStoreOptions& options) {
  const bool needs_slots = options.rows.disk > 0 && !options.unified_memory;
  return TierBytes(options.rows.host, options) + (needs_slots ? AllSlotBytes(options) : 0);
}

int64_t ActivationStore::DiskBytes(const ActivationStoreOptions& options) {
  return TierBytes(options.rows.disk, options);
}

absl::StatusOr<std::unique_ptr<ActivationStore>> ActivationStore::Create(
    const ActivationStoreOptions& options, const std::string& folder, Pool& device_pool,
    Pool& host_pool) {
  std::unique_ptr<ActivationStore> store(new ActivationStore(options));
  const bool is_staged = !options.rows.all_on_device();
  const auto reserve = [](Pool& pool, int64_t bytes, const char* purpose,
                          Buffer& buffer) -> absl::Status {
    if (bytes > 0) {
      ASSIGN_OR_RETURN(buffer, pool.Reserve(bytes, purpose));
    }
    return absl::OkStatus();
  };
  const int64_t device_bytes = is_staged ? TierBytes(options.rows.device, options)
                                         : options.rows.device * RowBytes(options.width);
  RETURN_IF_ERROR(reserve(device_pool, device_bytes, "activations", store->device_));
  RETURN_IF_ERROR(reserve(host_pool, TierBytes(options.rows.host, options),
                          "activations beside the device", store->host_));
  if (is_staged) {
    RETURN_IF_ERROR(reserve(device_pool, AllSlotBytes(options), "activations of batches",
                            store->device_slots_));
  }
  if (options.rows.disk > 0) {
    if (!options.unified_memory) {
      RETURN_IF_ERROR(reserve(host_pool, AllSlotBytes(options),
                              "activations on their way to and from the disk", store->host_slots_));
    }
    ASSIGN_OR_RETURN(DiskFile file,
                     DiskFile::CreateSpill(folder, TierBytes(options.rows.disk, options)));
    store->file_ = std::make_unique<DiskFile>(std::move(file));
  }
  return store;
}

int64_t ActivationStore::row_bytes() const {
  return RowBytes(options_.width);
}

int64_t ActivationStore::slot_bytes() const {
  return SlotBytes(options_);
}

void ActivationStore::Assign(std::span<const Batch> batches) {
  places_.clear();
  if (options_.rows.all_on_device()) {
    for (const Batch& batch : batches) {
      places_.push_back({.offset = batch.first_row * row_bytes(), .rows = batch.num_rows});
    }
    return;
  }
  const int64_t capacity[] = {static_cast<int64_t>(device_.bytes().size()),
                              static_cast<int64_t>(host_.bytes().size()),
                              TierBytes(options_.rows.disk, options_)};
  int64_t used = 0;
  size_t tier = 0;
  for (const Batch& batch : batches) {
    const int64_t bytes = RoundUp(batch.num_rows * row_bytes(), kDiskAlignment);
    while (used + bytes > capacity[tier]) {
      ++tier;
      CHECK_LT(tier, std::size(capacity));
      used = 0;
    }
    places_.push_back({static_cast<Tier>(tier), used, batch.num_rows, bytes});
    used += bytes;
  }
}

MatrixView ActivationStore::Rows(size_t batch, size_t slot) const {
  const Place& place = places_[batch];
  std::byte* data = place.tier == Tier::kDevice ? device_.bytes().data() + place.offset
                                                : OnDevice(batch, slot).data();
  return {reinterpret_cast<float*>(data), place.rows, options_.width, RowStride(options_.width)};
}

MatrixView ActivationStore::AllRows(int64_t rows) const {
  CHECK(options_.rows.all_on_device());
  return {reinterpret_cast<float*>(device_.bytes().data()), rows, options_.width,
          RowStride(options_.width)};
}

std::span<std::byte> ActivationStore::OnDevice(size_t batch, size_t slot) const {
  return device_slots_.bytes().subspan(slot * static_cast<size_t>(slot_bytes()),
                                       static_cast<size_t>(places_[batch].bytes));
}

std::span<std::byte> ActivationStore::OnHost(size_t batch, size_t slot) const {
  const Place& place = places_[batch];
  const size_t bytes = static_cast<size_t>(place.bytes);
  return place.tier == Tier::kHost
             ? host_.bytes().subspan(static_cast<size_t>(place.offset), bytes)
             : host_slots_.bytes().subspan(slot * static_cast<size_t>(slot_bytes()), bytes);
}

}  // namespace nightshift
