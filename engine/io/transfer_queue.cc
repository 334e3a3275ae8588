#include "engine/io/transfer_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/checksum.h"
#include "kernels/base/clock.h"

namespace nightshift {
namespace {

bool IsAligned(int64_t value) {
  return value % kDiskAlignment == 0;
}

std::string Describe(const Transfer& transfer, int64_t offset) {
  return absl::StrCat(transfer.kind == TransferKind::kRead ? "read " : "write ",
                      transfer.file->path(), " at offset ", offset);
}

absl::Status PieceError(const Transfer& transfer, const Piece& piece, int64_t result) {
  const std::string what = Describe(transfer, piece.offset);
  if (result == 0) {
    return absl::DataLossError(
        absl::StrCat(what, ": the file ends there, ", piece.memory.size(), " bytes are missing"));
  }
  const int error = static_cast<int>(-result);
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message)
                                            : absl::FailedPreconditionError(message);
}

absl::Status Verify(const Transfer& transfer) {
  if (!transfer.checksum) {
    return absl::OkStatus();
  }
  const size_t bytes = static_cast<size_t>(transfer.checksum->bytes);
  const uint64_t found = Xxh3(transfer.memory.first(bytes));
  if (found == transfer.checksum->xxh3) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(Describe(transfer, transfer.offset), ": the checksum of ",
                                          bytes, " bytes is ", absl::Hex(found, absl::kZeroPad16),
                                          ", must be ",
                                          absl::Hex(transfer.checksum->xxh3, absl::kZeroPad16)));
}

void Complete(const Transfer& transfer, const absl::Status& status) {
  transfer.fence->Complete(status.ok() ? Verify(transfer) : status);
}

}  // namespace

TransferQueue::TransferQueue(int64_t piece_bytes) : piece_bytes_(piece_bytes) {
  CHECK(piece_bytes > 0 && IsAligned(piece_bytes));
}

void TransferQueue::Submit(const Transfer& transfer) {
  CHECK(!transfer.memory.empty());
  CHECK(IsAligned(transfer.offset) && IsAligned(static_cast<int64_t>(transfer.memory.size())) &&
        IsAligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(transfer.memory.data()))));
  {
    const MutexLock lock(mutex_);
    if (!closed_) {
      size_t id = active_.size();
      if (free_ids_.empty()) {
        active_.emplace_back();
      } else {
        id = free_ids_.back();
        free_ids_.pop_back();
      }
      active_[id] = std::make_unique<Active>();
      active_[id]->transfer = transfer;
      waiting_.push_back(id);
      work_.NotifyAll();
      return;
    }
  }
  transfer.fence->Complete(absl::CancelledError("disk transfer: the queue is closed"));
}

std::optional<Piece> TransferQueue::Take(bool wait) {
  const MutexLock lock(mutex_);
  while (wait && !closed_ && !HasPiecesLocked()) {
    work_.Wait(mutex_);
  }
  if (!HasPiecesLocked()) {
    return std::nullopt;
  }
  CountFlightLocked(1);
  return NextPieceLocked();
}

bool TransferQueue::HasPiecesLocked() const {
  return !again_.empty() || !waiting_.empty();
}

Piece TransferQueue::NextPieceLocked() {
  if (!again_.empty()) {
    const Piece piece = again_.front();
    again_.pop_front();
    return piece;
  }
  const size_t id = waiting_.front();
  Active& active = *active_[id];
  const Transfer& transfer = active.transfer;
  const int64_t total = static_cast<int64_t>(transfer.memory.size());
  const int64_t bytes = std::min(piece_bytes_, total - active.next_byte);
  const Piece piece{.transfer = id,
                    .kind = transfer.kind,
                    .fd = transfer.file->fd(),
                    .offset = transfer.offset + active.next_byte,
                    .memory = transfer.memory.subspan(static_cast<size_t>(active.next_byte),
                                                      static_cast<size_t>(bytes))};
  active.next_byte += bytes;
  ++active.pieces;
  if (active.next_byte == total) {
    waiting_.pop_front();
  }
  return piece;
}

void TransferQueue::CountFlightLocked(int change) {
  const int64_t before = in_flight_;
  in_flight_ += change;
  if (before == 0) {
    busy_since_us_ = RealClock().MonotonicMicros();
  } else if (in_flight_ == 0) {
    counts_.busy_us += RealClock().MonotonicMicros() - busy_since_us_;
  }
}

void TransferQueue::Finish(const Piece& piece, int64_t result) {
  std::unique_ptr<Active> ended;
  {
    const MutexLock lock(mutex_);
    CountFlightLocked(-1);
    Active& active = *active_[piece.transfer];
    const size_t moved = result > 0 ? static_cast<size_t>(result) : 0;
    CHECK_LE(moved, piece.memory.size());
    (piece.kind == TransferKind::kRead ? counts_.read_bytes : counts_.written_bytes) +=
        static_cast<int64_t>(moved);
    // A short transfer ends at any byte; direct ones go on from the last whole block.
    const size_t kept = moved == piece.memory.size() ? moved
                                                     : moved / static_cast<size_t>(kDiskAlignment) *
                                                           static_cast<size_t>(kDiskAlignment);
    const bool is_interrupted = result == -EINTR || result == -EAGAIN;
    if (active.status.ok() && (is_interrupted || (kept > 0 && kept < piece.memory.size()))) {
      Piece rest = piece;
      rest.offset += static_cast<int64_t>(kept);
      rest.memory = piece.memory.subspan(kept);
      again_.push_back(rest);
      work_.NotifyAll();
      return;
    }
    if (kept < piece.memory.size() && active.status.ok()) {
      active.status = PieceError(active.transfer, piece, moved > 0 ? 0 : result);
    }
    --active.pieces;
    ended = TakeEndedLocked(piece.transfer);
  }
  if (ended != nullptr) {
    Complete(ended->transfer, ended->status);
  }
}

std::unique_ptr<TransferQueue::Active> TransferQueue::TakeEndedLocked(size_t id) {
  Active& active = *active_[id];
  if (!active.status.ok() &&
      active.next_byte < static_cast<int64_t>(active.transfer.memory.size())) {
    // Nothing more of it is given out.
    active.next_byte = static_cast<int64_t>(active.transfer.memory.size());
    std::erase(waiting_, id);
  }
  if (active.pieces > 0 || active.next_byte < static_cast<int64_t>(active.transfer.memory.size())) {
    return nullptr;
  }
  free_ids_.push_back(id);
  return std::move(active_[id]);
}

void TransferQueue::Return(const Piece& piece) {
  const MutexLock lock(mutex_);
  CountFlightLocked(-1);
  again_.push_back(piece);
  work_.NotifyAll();
}

void TransferQueue::Close() {
  std::vector<std::unique_ptr<Active>> ended;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    for (const Piece& piece : again_) {
      --active_[piece.transfer]->pieces;
    }
    again_.clear();
    waiting_.clear();
    for (size_t id = 0; id < active_.size(); ++id) {
      if (active_[id] == nullptr) {
        continue;
      }
      if (active_[id]->status.ok()) {
        active_[id]->status = absl::CancelledError("disk transfer: the queue is closed");
      }
      if (std::unique_ptr<Active> active = TakeEndedLocked(id)) {
        ended.push_back(std::move(active));
      }
    }
    work_.NotifyAll();
  }
  for (const std::unique_ptr<Active>& active : ended) {
    Complete(active->transfer, active->status);
  }
}

TransferCounts TransferQueue::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

}  // namespace nightshift
