#include "server/input/file_window.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

namespace nightshift {
namespace {

// Large enough that a system call costs little beside parsing what it read.
constexpr int64_t kReadBytes = 256 << 10;

}  // namespace

absl::StatusOr<absl::string_view> FileWindow::Peek(int64_t wanted) {
  int64_t held = static_cast<int64_t>(buffer_.size()) - begin_;
  while (held < wanted && !ended_) {
    if (begin_ > 0) {
      buffer_.erase(0, static_cast<size_t>(begin_));
      begin_ = 0;
    }
    const int64_t room = std::max(kReadBytes, wanted - held);
    buffer_.resize(static_cast<size_t>(held + room));
    ssize_t count = 0;
    do {
      count = ::pread(fd_, buffer_.data() + held, static_cast<size_t>(room), position_ + held);
    } while (count < 0 && errno == EINTR);
    buffer_.resize(static_cast<size_t>(held + std::max<ssize_t>(count, 0)));
    if (count < 0) {
      return absl::InternalError(
          absl::StrCat("read input at offset ", position_ + held, ": ", std::strerror(errno)));
    }
    ended_ = count == 0;
    held += count;
  }
  return absl::string_view(buffer_).substr(static_cast<size_t>(begin_));
}

void FileWindow::Skip(int64_t count) {
  CHECK_LE(count, static_cast<int64_t>(buffer_.size()) - begin_);
  begin_ += count;
  position_ += count;
}

}  // namespace nightshift
