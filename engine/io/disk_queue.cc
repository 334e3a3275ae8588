#include "engine/io/disk_queue.h"

#include <cerrno>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/io/uring_mover.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

constexpr int kMaxDepth = 256;

int64_t Move(const Piece& piece) {
  const ssize_t moved =
      piece.kind == TransferKind::kRead
          ? pread(piece.fd, piece.memory.data(), piece.memory.size(), piece.offset)
          : pwrite(piece.fd, piece.memory.data(), piece.memory.size(), piece.offset);
  return moved >= 0 ? moved : -errno;
}

void MovePieces(TransferQueue& transfers) {
  while (const std::optional<Piece> piece = transfers.Take(true)) {
    transfers.Finish(*piece, Move(*piece));
  }
}

absl::Status Validate(const DiskQueueOptions& options) {
  if (options.depth < 1 || options.depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("disk queue depth is ", options.depth, ", must be 1 to ", kMaxDepth));
  }
  if (options.piece_bytes < kDiskAlignment || options.piece_bytes % kDiskAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("disk piece size is ", options.piece_bytes,
                                                   ", must be a multiple of ", kDiskAlignment));
  }
  return absl::OkStatus();
}

}  // namespace

const char* DiskBackendName(DiskBackend backend) {
  return backend == DiskBackend::kIoUring ? "io_uring" : "threads";
}

absl::StatusOr<std::unique_ptr<DiskQueue>> DiskQueue::Create(const DiskQueueOptions& options) {
  RETURN_IF_ERROR(Validate(options));
  std::unique_ptr<UringMover> ring;
  if (options.backend != DiskBackend::kThreads) {
    auto created = UringMover::Create(options.depth, options.memory, options.fds);
    if (!created.ok() && options.backend.has_value()) {
      return created.status();
    }
    if (created.ok()) {
      ring = *std::move(created);
    } else {
      LOG(WARNING) << "disk_backend backend=threads reason=\"" << created.status().message()
                   << "\"";
    }
  }
  return std::unique_ptr<DiskQueue>(new DiskQueue(options, std::move(ring)));
}

DiskQueue::DiskQueue(const DiskQueueOptions& options, std::unique_ptr<UringMover> ring)
    : options_(options),
      transfers_(options.piece_bytes),
      ring_(std::move(ring)),
      backend_(ring_ != nullptr ? DiskBackend::kIoUring : DiskBackend::kThreads),
      thread_([this] { Work(); }) {}

DiskQueue::~DiskQueue() {
  transfers_.Close();
  thread_.join();
}

void DiskQueue::Work() {
  NameThread("ns-disk");
  if (ring_ != nullptr) {
    const absl::Status died = ring_->MovePieces(transfers_);
    if (died.ok()) {
      return;
    }
    LOG(WARNING) << "disk_backend backend=threads reason=\"" << died.message() << "\"";
    backend_ = DiskBackend::kThreads;
  }
  WorkByThreads();
}

void DiskQueue::WorkByThreads() {
  std::vector<std::thread> others;
  for (int i = 1; i < options_.depth; ++i) {
    others.emplace_back([this] { MovePieces(transfers_); });
  }
  MovePieces(transfers_);
  for (std::thread& other : others) {
    other.join();
  }
}

}  // namespace nightshift
