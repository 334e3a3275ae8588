// FileDescriptor: an open file that closes itself, and the POSIX calls on it as statuses.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// Move-only. Owns the descriptor; -1 is "none".
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const { return fd_; }
  void Close();

 private:
  int fd_ = -1;
};

// The error of a failed call, from errno: "attempted PATH: No space left on device".
// Codes: RESOURCE_EXHAUSTED for a full disk or quota, NOT_FOUND, PERMISSION_DENIED, else INTERNAL.
absl::Status ErrnoStatus(absl::string_view attempted, absl::string_view path);

// Writes all of `bytes` at the file's position; `path` names it in errors.
absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path);

// Makes what was written to the file durable. An error is final: the kernel forgets which pages
// were lost, so a second fsync proves nothing.
absl::Status SyncFile(int fd, absl::string_view path);

// Makes renames and new names in the folder of `path` durable.
absl::Status SyncFolderOf(const std::string& path);

// The whole file, at most max_bytes of it. Errors: as ErrnoStatus; RESOURCE_EXHAUSTED above that.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes);

}  // namespace nightshift
