// ShardReader: reads shards of a pack from disk, past the page cache, each verified.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/io/disk_file.h"
#include "engine/io/disk_queue.h"
#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"

namespace nightshift {

// Bytes of memory that a shard of `stored_bytes` is read into: whole blocks of the disk.
int64_t TransferBytes(int64_t stored_bytes);

// Which reads of a shard are held to its checksum.
enum class WeightChecks : uint8_t { kEveryRead, kFirstRead };

// Where a shard is to be read: at least its TransferBytes, aligned to kDiskAlignment.
struct ShardTarget {
  ShardIndex shard;
  std::span<std::byte> memory;
};

// A shard on its way.
struct PendingShard {
  ShardIndex shard;
  std::span<std::byte> memory;
  std::unique_ptr<Fence> fence;
};

// Used by one thread but where said. The pack must outlive it, and memory that is read into
// outlives the reader or its fence's completion.
class ShardReader {
 public:
  // Opens the pack's extent. Errors: as DiskFile::Open and DiskQueue::Create.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Create(
      const Pack& pack, const DiskQueueOptions& options,
      WeightChecks checks = WeightChecks::kEveryRead);

  PendingShard Submit(const ShardTarget& target);
  // The same with the caller's fence; thread-safe.
  void Submit(const ShardTarget& target, Fence* fence);
  // Errors: DATA_LOSS, FAILED_PRECONDITION as TransferQueue, naming tensor, shard, file, offset.
  absl::Status Wait(const PendingShard& pending);
  // The status of a shard's transfer with the names of tensor and shard.
  absl::Status Name(ShardIndex shard, const absl::Status& status) const;

  // Reads each shard into its memory, at most `window` of them together, and hands them to `use` in
  // order, with their bytes as stored. Memory may come again in `targets` after `window` others.
  // Ends with the first error.
  absl::Status ReadEach(std::span<const ShardTarget> targets, size_t window,
                        const std::function<void(ShardIndex, std::span<const std::byte>)>& use);

  const TensorEntry& TensorOf(ShardIndex shard) const;
  const ShardEntry& EntryOf(ShardIndex shard) const;
  int64_t wait_us() const { return wait_us_; }  // spent in Wait, all calls together
  TransferCounts counts() const { return disk_->counts(); }
  DiskBackend backend() const { return disk_->backend(); }
  DiskQueue& disk() { return *disk_; }

 private:
  ShardReader(const Pack& pack, DiskFile file, WeightChecks checks,
              std::unique_ptr<DiskQueue> disk);

  const Pack& pack_;
  const DiskFile file_;
  const WeightChecks checks_;
  // By tensor and shard: has been read before. Of two threads that read one for the first time
  // both check it.
  std::vector<std::vector<std::atomic<bool>>> was_read_;
  int64_t wait_us_ = 0;
  std::unique_ptr<DiskQueue> disk_;
};

}  // namespace nightshift
