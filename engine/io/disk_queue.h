// DiskQueue: the one door to the disk. Many large transfers on their way together, past the page
// cache, by io_uring or, where the kernel gives none, by threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/io/transfer_queue.h"

namespace nightshift {

enum class DiskBackend : uint8_t { kIoUring, kThreads };
const char* DiskBackendName(DiskBackend backend);  // "io_uring", "threads"

struct DiskQueueOptions {
  // Nothing: io_uring if a probe says that it works here, else threads.
  std::optional<DiskBackend> backend;
  // Pieces on their way together, and bytes of one. NVMe disks reach their sequential rate with 16
  // MiB and more on their way (measured: 4 MiB x 32 1.3 GB/s, 128 KiB x 32 0.48, on one machine).
  int depth = 32;
  int64_t piece_bytes = int64_t{1} << 20;
  // Memory of coming transfers, pinned once instead of at each (io_uring only; memory outside is
  // transferred too). At most 1 GiB a span. Left unpinned, and said in the log, when the kernel
  // refuses.
  std::vector<std::span<std::byte>> memory;
  // Descriptors of files that stay open for as long as the queue lives, registered once instead of
  // looked up at each transfer (io_uring only; others are transferred too). As with memory, not
  // registered, and said in the log, when the kernel refuses.
  std::vector<int> fds;
};

class UringMover;

// Thread-safe. Transfers are served in the order of Submit and may end in another. One thread waits
// for the disk; with the threads backend `depth` of them.
class DiskQueue {
 public:
  // Errors: FAILED_PRECONDITION when io_uring is asked for and not given, with the kernel's word;
  // INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<std::unique_ptr<DiskQueue>> Create(const DiskQueueOptions& options);
  // What has not begun ends with CANCELLED; returns when nothing is on its way.
  ~DiskQueue();

  void Submit(const Transfer& transfer) { transfers_.Submit(transfer); }
  TransferCounts counts() const { return transfers_.counts(); }
  // Changes from io_uring to threads when a ring dies.
  DiskBackend backend() const { return backend_.load(); }

 private:
  DiskQueue(const DiskQueueOptions& options, std::unique_ptr<UringMover> ring);
  void Work();
  void WorkByThreads();

  const DiskQueueOptions options_;
  TransferQueue transfers_;
  std::unique_ptr<UringMover> ring_;  // null: threads from the start
  std::atomic<DiskBackend> backend_;
  std::thread thread_;
};

}  // namespace nightshift
