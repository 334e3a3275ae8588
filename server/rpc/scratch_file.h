// ScratchFile: records that are too many for memory, in an unnamed file that vanishes with its
// owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// An error of a file operation by errno: RESOURCE_EXHAUSTED (DISK_FULL) when the disk or the quota
// is full, else INTERNAL. `tried` says what and on which object.
absl::Status FileError(absl::string_view tried);

// Writes all bytes at an offset. Errors: FileError.
absl::Status WriteAt(int fd, int64_t offset, absl::string_view bytes, absl::string_view what);
// Fills the whole target from an offset. Errors: INTERNAL, also when the file is shorter.
absl::Status ReadInto(int fd, int64_t offset, std::span<std::byte> target, absl::string_view what);
// Reads exactly size bytes at an offset. Errors: as ReadInto.
absl::StatusOr<std::string> ReadAt(int fd, int64_t offset, int64_t size, absl::string_view what);

// One thread.
class ScratchFile {
 public:
  static absl::StatusOr<std::unique_ptr<ScratchFile>> Create(const std::string& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Adds bytes at the end; gives the offset where they begin.
  absl::StatusOr<int64_t> Append(absl::string_view bytes);
  // Makes what was appended readable through fd().
  absl::Status Flush();
  int fd() const { return fd_; }

 private:
  explicit ScratchFile(int fd) : fd_(fd) {}

  const int fd_;
  int64_t flushed_bytes_ = 0;
  std::string pending_;
};

}  // namespace nightshift
