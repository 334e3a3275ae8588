#include "engine/memory/shard_reader.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor_view.h"

namespace nightshift {

int64_t TransferBytes(int64_t stored_bytes) {
  return RoundUp(stored_bytes, kDiskAlignment);
}

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::Create(const Pack& pack,
                                                                 const DiskQueueOptions& options,
                                                                 WeightChecks checks) {
  ASSIGN_OR_RETURN(DiskFile file, DiskFile::Open(absl::StrCat(pack.path(), "/", kExtentFile)));
  DiskQueueOptions with_file = options;
  with_file.fds.push_back(file.fd());
  ASSIGN_OR_RETURN(std::unique_ptr<DiskQueue> disk, DiskQueue::Create(with_file));
  return std::unique_ptr<ShardReader>(
      new ShardReader(pack, std::move(file), checks, std::move(disk)));
}

ShardReader::ShardReader(const Pack& pack, DiskFile file, WeightChecks checks,
                         std::unique_ptr<DiskQueue> disk)
    : pack_(pack), file_(std::move(file)), checks_(checks), disk_(std::move(disk)) {
  for (const TensorEntry& tensor : pack.manifest().tensors) {
    was_read_.emplace_back(tensor.shards.size());
  }
}

PendingShard ShardReader::Submit(const ShardTarget& target) {
  const size_t bytes = static_cast<size_t>(TransferBytes(EntryOf(target.shard).bytes));
  PendingShard pending{target.shard, target.memory.first(bytes), std::make_unique<Fence>()};
  Submit(target, pending.fence.get());
  return pending;
}

void ShardReader::Submit(const ShardTarget& target, Fence* fence) {
  const ShardEntry& entry = EntryOf(target.shard);
  const size_t bytes = static_cast<size_t>(TransferBytes(entry.bytes));
  CHECK_LE(bytes, target.memory.size());
  const bool was_read = was_read_[target.shard.tensor][target.shard.shard].exchange(true);
  std::optional<Checksum> checksum;
  if (checks_ == WeightChecks::kEveryRead || !was_read) {
    checksum = Checksum{.bytes = entry.bytes, .xxh3 = entry.xxh3};
  }
  disk_->Submit({.file = &file_,
                 .offset = entry.offset,
                 .memory = target.memory.first(bytes),
                 .fence = fence,
                 .checksum = checksum});
}

absl::Status ShardReader::Wait(const PendingShard& pending) {
  const RealClock clock;
  const int64_t start_us = clock.MonotonicMicros();
  const absl::Status status = pending.fence->Wait();
  wait_us_ += clock.MonotonicMicros() - start_us;
  return Name(pending.shard, status);
}

absl::Status ShardReader::Name(ShardIndex shard, const absl::Status& status) const {
  if (status.ok()) {
    return status;
  }
  return absl::Status(status.code(), absl::StrCat("read shard ", shard.shard, " of tensor ",
                                                  TensorOf(shard).name, ": ", status.message()));
}

absl::Status ShardReader::ReadEach(
    std::span<const ShardTarget> targets, size_t window,
    const std::function<void(ShardIndex, std::span<const std::byte>)>& use) {
  std::deque<PendingShard> pending;
  absl::Status first_error;
  for (size_t next = 0; next < targets.size() || !pending.empty();) {
    // After an error nothing more is begun, but what has begun still writes into its memory.
    while (first_error.ok() && next < targets.size() && pending.size() < window) {
      pending.push_back(Submit(targets[next]));
      ++next;
    }
    if (pending.empty()) {
      return first_error;
    }
    const PendingShard& oldest = pending.front();
    first_error.Update(Wait(oldest));
    if (first_error.ok()) {
      const size_t bytes = static_cast<size_t>(EntryOf(oldest.shard).bytes);
      use(oldest.shard, oldest.memory.first(bytes));
    }
    pending.pop_front();
  }
  return first_error;
}

const TensorEntry& ShardReader::TensorOf(ShardIndex shard) const {
  return pack_.manifest().tensors[shard.tensor];
}

const ShardEntry& ShardReader::EntryOf(ShardIndex shard) const {
  return TensorOf(shard).shards[shard.shard];
}

}  // namespace nightshift
