// FileWindow: forward reading of a file through one buffer, which holds what its user looks at.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// One thread. The descriptor stays the caller's.
class FileWindow {
 public:
  explicit FileWindow(int fd) : fd_(fd) {}

  // The bytes from position() on: at least `wanted` of them, fewer only where the file ends. Valid
  // until the next call. Errors: INTERNAL with the offset when reading fails.
  absl::StatusOr<absl::string_view> Peek(int64_t wanted);
  // Moves on by `count` bytes, at most as many as the last Peek gave.
  void Skip(int64_t count);
  int64_t position() const { return position_; }

 private:
  const int fd_;
  std::string buffer_;
  int64_t begin_ = 0;     // in buffer_, of position_
  int64_t position_ = 0;  // in the file
  bool ended_ = false;
};

}  // namespace nightshift
