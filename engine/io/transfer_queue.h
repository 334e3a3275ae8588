// TransferQueue: transfers as they are asked for, cut into the pieces that a disk is given at one
// time; knows nothing of how pieces are moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "engine/io/disk_file.h"
#include "kernels/base/fence.h"
#include "kernels/base/mutex.h"

namespace nightshift {

enum class TransferKind : uint8_t { kRead, kWrite };

// What a read must have brought.
struct Checksum {
  int64_t bytes = 0;  // the first so many of the memory
  uint64_t xxh3 = 0;
};

// One stretch of a file to or from memory. Offset, length and address: multiples of
// kDiskAlignment. `file`, `memory` and `fence` must outlive the fence's completion.
struct Transfer {
  TransferKind kind = TransferKind::kRead;
  const DiskFile* file = nullptr;
  int64_t offset = 0;
  std::span<std::byte> memory;
  Fence* fence = nullptr;
  std::optional<Checksum> checksum = {};  // of reads
};

// A part of a transfer, on its way.
struct Piece {
  size_t transfer = 0;  // for Finish
  TransferKind kind = TransferKind::kRead;
  int fd = -1;
  int64_t offset = 0;
  std::span<std::byte> memory;
};

struct TransferCounts {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int64_t busy_us = 0;  // during which at least one piece was on its way
};

// First come, first served. Thread-safe.
class TransferQueue {
 public:
  // Pieces have at most `piece_bytes`, a multiple of kDiskAlignment.
  explicit TransferQueue(int64_t piece_bytes);

  // Never blocks. After Close the transfer ends at once with CANCELLED.
  void Submit(const Transfer& transfer);
  // The next piece, to be moved and given to Finish. Without one: waits if `wait`, until there is
  // one or the queue is closed; nothing otherwise.
  std::optional<Piece> Take(bool wait);
  // `result`: bytes moved, or minus errno. What is missing of the piece, and pieces that were
  // interrupted, are given out again. With its last piece a transfer's fence is completed, by this
  // thread, which verifies the checksum. Errors: DATA_LOSS (checksum, end), FAILED_PRECONDITION
  // (the disk says no, EIO and others), RESOURCE_EXHAUSTED (disk full), naming file and offset.
  void Finish(const Piece& piece, int64_t result);
  // Hands a piece back that has not been moved, to be given out again.
  void Return(const Piece& piece);
  // Ends what waits with CANCELLED; pieces on their way still finish.
  void Close();

  TransferCounts counts() const;

 private:
  struct Active {
    Transfer transfer;
    int64_t next_byte = 0;  // of the part that has not been given out
    int64_t pieces = 0;     // on their way or to be given out again
    absl::Status status;
  };

  bool HasPiecesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Piece NextPieceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountFlightLocked(int change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the transfer out if nothing more will happen to it.
  std::unique_ptr<Active> TakeEndedLocked(size_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t piece_bytes_;
  mutable Mutex mutex_;
  CondVar work_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Active>> active_ ABSL_GUARDED_BY(mutex_);  // by id; ids are reused
  std::vector<size_t> free_ids_ ABSL_GUARDED_BY(mutex_);
  std::deque<size_t> waiting_ ABSL_GUARDED_BY(mutex_);  // have bytes that were not given out
  std::deque<Piece> again_ ABSL_GUARDED_BY(mutex_);     // go before those
  int64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t busy_since_us_ ABSL_GUARDED_BY(mutex_) = 0;
  TransferCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
