// UringMover: moves the pieces of a TransferQueue by io_uring.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/io/transfer_queue.h"

namespace nightshift {

class UringMover {
 public:
  // Sets a ring up for `depth` pieces, pins `memory` and registers the open files `fds`. Errors:
  // FAILED_PRECONDITION with the kernel's word (containers often forbid io_uring: EPERM).
  static absl::StatusOr<std::unique_ptr<UringMover>> Create(
      int depth, const std::vector<std::span<std::byte>>& memory, const std::vector<int>& fds);
  ~UringMover();
  UringMover(const UringMover&) = delete;
  UringMover& operator=(const UringMover&) = delete;

  // Runs until `transfers` is closed and nothing is on its way: OK. UNAVAILABLE when the ring dies;
  // what was on its way has been returned to `transfers`.
  absl::Status MovePieces(TransferQueue& transfers);

 private:
  struct Ring;
  explicit UringMover(int depth);

  void PinMemory(const std::vector<std::span<std::byte>>& memory);
  void RegisterFiles(const std::vector<int>& fds);
  void Issue(const Piece& piece);
  void Reap(TransferQueue& transfers);
  // Index of the pinned span that holds all of the piece's memory, or -1.
  int PinnedIndex(const Piece& piece) const;

  std::unique_ptr<Ring> ring_;
  std::vector<Piece> pieces_;       // on their way, by slot
  std::vector<size_t> free_slots_;  // of pieces_
  std::vector<std::span<std::byte>> pinned_;
  std::vector<int> registered_fds_;
};

}  // namespace nightshift
