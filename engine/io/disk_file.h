// DiskFile: a file whose transfers bypass the page cache.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace nightshift {

// Offsets, lengths and memory addresses of transfers are multiples of this: what O_DIRECT asks of
// every disk we know.
inline constexpr int64_t kDiskAlignment = 4096;

// Move-only owner of a descriptor.
class DiskFile {
 public:
  // An existing file, for reading. Errors: NOT_FOUND, FAILED_PRECONDITION with the path.
  static absl::StatusOr<DiskFile> Open(const std::string& path);
  // A file of `bytes` reserved bytes in `folder`, for writing and reading back. It has no name, so
  // it is gone with the process whatever ends it.
  // Errors: UNAVAILABLE (disk full, with asked and free: come later), FAILED_PRECONDITION.
  static absl::StatusOr<DiskFile> CreateSpill(const std::string& folder, int64_t bytes);

  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  ~DiskFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }  // of a spill: its folder
  int64_t bytes() const { return bytes_; }
  // False where the filesystem has no O_DIRECT (tmpfs): transfers go through the page cache.
  bool is_direct() const { return is_direct_; }

 private:
  DiskFile(std::string path, int fd, bool is_direct);

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
  bool is_direct_ = false;
};

}  // namespace nightshift
