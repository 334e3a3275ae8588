// Measurements of the disk, through the queue that the engine's lanes go through: past the page
// cache, pieces of 1 MiB, 32 on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/io/disk_file.h"
#include "engine/io/disk_queue.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/measurement.h"
#include "kernels/base/clock.h"

namespace nightshift {

// Bytes that are free on a folder's disk for others than root. Errors: NOT_FOUND (no such folder),
// INVALID_ARGUMENT (it is a file).
absl::StatusOr<int64_t> FreeDiskBytes(const std::string& folder);

// Owns the file that is read and written, which has no name and is gone with the process. Used by
// one thread; outlives its measurements.
class DiskProbes {
 public:
  // Makes a file of `bytes` in the folder and writes it, for `most_seconds` at most; what was
  // written by then, at least kLeastFile, is the file. `memory`: kMemory, aligned as pages.
  // Errors: as FreeDiskBytes; RESOURCE_EXHAUSTED when the disk has not twice as much free, with
  // both numbers; as DiskFile and DiskQueue.
  static absl::StatusOr<std::unique_ptr<DiskProbes>> Create(const std::string& folder,
                                                            int64_t bytes, double most_seconds,
                                                            std::span<std::byte> memory,
                                                            const Clock& clock);
  static constexpr int64_t kLeastFile = int64_t{64} << 20;
  static constexpr int64_t kMemory = int64_t{48} << 20;

  // Reads and writes by their size, reads by how many are on their way. Those below 1 MiB are
  // spread, as pages are; larger ones follow each other and reads are verified, as weights are. No
  // write is said to be faster than writing the file was: disks take bursts faster than streams.
  void AddTo(HardwareProfile& profile, std::vector<Measurement>& measurements);

  bool is_direct() const { return file_.is_direct(); }
  int64_t file_bytes() const { return file_bytes_; }

 private:
  static constexpr int64_t kContent = int64_t{16} << 20;  // holds the largest transfer

  DiskProbes(DiskFile file, std::span<std::byte> memory)
      : file_(std::move(file)),
        content_(memory.first(static_cast<size_t>(kContent))),
        targets_(memory.subspan(static_cast<size_t>(kContent))) {}

  // `count` transfers of `bytes` from or to the next stretch of the file, `depth` on their way
  // together. Returns the bytes moved. Errors: of the first transfer that has one.
  absl::StatusOr<double> Move(TransferKind kind, int64_t bytes, int depth, int64_t count);
  // `slot`: where in targets_ what is read goes.
  Transfer TransferAt(TransferKind kind, int64_t offset, int64_t bytes, size_t slot, Fence* fence);
  // Where the next stretch of that length begins.
  int64_t NextStretch(TransferKind kind, int64_t bytes);
  void AddSize(TransferKind kind, int64_t bytes, RateCurve& curve,
               std::vector<Measurement>& measurements);

  DiskFile file_;
  std::span<std::byte> content_;  // of the file, again and again: never changes
  std::span<std::byte> targets_;  // of what is read
  std::map<std::pair<int64_t, int64_t>, uint64_t> checksums_;  // by bytes and offset in content_
  int64_t file_bytes_ = 0;
  double stream_bytes_per_s_ = 0.0;  // of writing the file
  int64_t next_read_ = 0;
  int64_t next_write_ = 0;
  std::unique_ptr<DiskQueue> queue_;  // destroyed first
};

}  // namespace nightshift
