// ByteReader: a file byte by byte, through a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {

// Move-only; one thread.
class ByteReader {
 public:
  // Errors: INVALID_ARGUMENT for what is no regular file; as ErrnoStatus.
  static absl::StatusOr<ByteReader> Open(const std::string& path);

  // The next byte without, or with, moving on; nothing at the end or after an error.
  std::optional<char> Peek();
  std::optional<char> Next();
  // Of reading.
  const absl::Status& status() const { return status_; }
  int64_t size_bytes() const { return size_bytes_; }  // when it was opened

 private:
  ByteReader(FileDescriptor file, std::string name, int64_t size_bytes)
      : file_(std::move(file)), name_(std::move(name)), size_bytes_(size_bytes) {}

  FileDescriptor file_;
  std::string name_;  // for messages
  int64_t size_bytes_;
  std::string buffer_;
  size_t at_ = 0;
  absl::Status status_;
};

}  // namespace nightshift
