// SourceFile: a file opened for reading whose content nobody vouches for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

// Move-only owner of a descriptor. The size is taken once after opening; a file that shrinks later
// gives an error, never a fault (pread, no mapping). Thread-safe.
class SourceFile {
 public:
  // kNoLinks refuses a symbolic link as the last component.
  enum class Links : uint8_t { kFollow, kNoLinks };
  // Errors: NOT_FOUND, INVALID_ARGUMENT (not a regular file), FAILED_PRECONDITION (no access).
  static absl::StatusOr<SourceFile> Open(const std::string& path, Links links = Links::kFollow);

  SourceFile(SourceFile&& other) noexcept;
  SourceFile& operator=(SourceFile&& other) noexcept;
  ~SourceFile();

  // Fills `target` from `offset` on. Errors: DATA_LOSS when the file ends before, with the numbers.
  absl::Status Read(int64_t offset, std::span<std::byte> target) const;
  // XXH3 of the whole file, read in pieces.
  absl::StatusOr<uint64_t> Digest() const;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }

 private:
  SourceFile(std::string path, int fd, int64_t bytes);

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

// The whole text of a file of at most `max_bytes`. Errors: as Open; INVALID_ARGUMENT above the
// bound.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes,
                                         SourceFile::Links links = SourceFile::Links::kFollow);

}  // namespace nightshift
