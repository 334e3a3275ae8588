#include "engine/io/uring_mover.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <liburing.h>
#include <sys/uio.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace nightshift {

// Owns the ring.
struct UringMover::Ring {
  io_uring ring{};
  bool is_set_up = false;
  ~Ring() {
    if (is_set_up) {
      io_uring_queue_exit(&ring);
    }
  }
};

absl::StatusOr<std::unique_ptr<UringMover>> UringMover::Create(
    int depth, const std::vector<std::span<std::byte>>& memory, const std::vector<int>& fds) {
  std::unique_ptr<UringMover> mover(new UringMover(depth));
  const int result = io_uring_queue_init(static_cast<unsigned>(depth), &mover->ring_->ring, 0);
  if (result < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("set up io_uring for ", depth, " transfers: ", std::strerror(-result)));
  }
  mover->ring_->is_set_up = true;
  mover->PinMemory(memory);
  mover->RegisterFiles(fds);
  return mover;
}

UringMover::UringMover(int depth)
    : ring_(std::make_unique<Ring>()), pieces_(static_cast<size_t>(depth)) {
  for (size_t slot = pieces_.size(); slot > 0; --slot) {
    free_slots_.push_back(slot - 1);
  }
}

UringMover::~UringMover() = default;

void UringMover::PinMemory(const std::vector<std::span<std::byte>>& memory) {
  if (memory.empty()) {
    return;
  }
  std::vector<iovec> vectors;
  for (const std::span<std::byte> span : memory) {
    vectors.push_back({span.data(), span.size()});
  }
  const int result = io_uring_register_buffers(&ring_->ring, vectors.data(),
                                               static_cast<unsigned>(vectors.size()));
  if (result == 0) {
    pinned_ = memory;
  } else {
    LOG(WARNING) << "disk_memory pinned=false spans=" << memory.size() << " reason=\""
                 << std::strerror(-result) << "\"";
  }
}

void UringMover::RegisterFiles(const std::vector<int>& fds) {
  if (fds.empty()) {
    return;
  }
  const int result =
      io_uring_register_files(&ring_->ring, fds.data(), static_cast<unsigned>(fds.size()));
  if (result == 0) {
    registered_fds_ = fds;
  } else {
    LOG(WARNING) << "disk_files registered=false files=" << fds.size() << " reason=\""
                 << std::strerror(-result) << "\"";
  }
}

absl::Status UringMover::MovePieces(TransferQueue& transfers) {
  while (true) {
    while (!free_slots_.empty()) {
      const bool is_idle = free_slots_.size() == pieces_.size();
      const std::optional<Piece> piece = transfers.Take(is_idle);
      if (!piece) {
        break;
      }
      Issue(*piece);
    }
    if (free_slots_.size() == pieces_.size()) {
      return absl::OkStatus();
    }
    const int result = io_uring_submit_and_wait(&ring_->ring, 1);
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
      for (size_t slot = 0; slot < pieces_.size(); ++slot) {
        if (std::find(free_slots_.begin(), free_slots_.end(), slot) == free_slots_.end()) {
          transfers.Return(pieces_[slot]);
        }
      }
      return absl::UnavailableError(absl::StrCat("wait for io_uring: ", std::strerror(-result)));
    }
    Reap(transfers);
  }
}

void UringMover::Issue(const Piece& piece) {
  const size_t slot = free_slots_.back();
  free_slots_.pop_back();
  pieces_[slot] = piece;
  io_uring_sqe* entry = io_uring_get_sqe(&ring_->ring);
  CHECK(entry != nullptr);  // as many entries as slots
  const unsigned bytes = static_cast<unsigned>(piece.memory.size());
  const uint64_t offset = static_cast<uint64_t>(piece.offset);
  const int pinned = PinnedIndex(piece);
  const bool is_read = piece.kind == TransferKind::kRead;
  if (pinned >= 0 && is_read) {
    io_uring_prep_read_fixed(entry, piece.fd, piece.memory.data(), bytes, offset, pinned);
  } else if (pinned >= 0) {
    io_uring_prep_write_fixed(entry, piece.fd, piece.memory.data(), bytes, offset, pinned);
  } else if (is_read) {
    io_uring_prep_read(entry, piece.fd, piece.memory.data(), bytes, offset);
  } else {
    io_uring_prep_write(entry, piece.fd, piece.memory.data(), bytes, offset);
  }
  const auto registered = std::find(registered_fds_.begin(), registered_fds_.end(), piece.fd);
  if (registered != registered_fds_.end()) {
    entry->fd = static_cast<int>(registered - registered_fds_.begin());
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
  }
  io_uring_sqe_set_data64(entry, slot);
}

void UringMover::Reap(TransferQueue& transfers) {
  io_uring_cqe* entry = nullptr;
  while (io_uring_peek_cqe(&ring_->ring, &entry) == 0) {
    const size_t slot = static_cast<size_t>(io_uring_cqe_get_data64(entry));
    const int64_t result = entry->res;
    io_uring_cqe_seen(&ring_->ring, entry);
    free_slots_.push_back(slot);
    transfers.Finish(pieces_[slot], result);
  }
}

int UringMover::PinnedIndex(const Piece& piece) const {
  const std::byte* first = piece.memory.data();
  for (size_t i = 0; i < pinned_.size(); ++i) {
    if (first >= pinned_[i].data() &&
        first + piece.memory.size() <= pinned_[i].data() + pinned_[i].size()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace nightshift
