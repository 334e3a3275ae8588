#include "server/rpc/scratch_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

constexpr size_t kFlushBytes = 256 << 10;

}  // namespace

absl::Status FileError(absl::string_view tried) {
  const std::string message = absl::StrCat(tried, ": ", std::strerror(errno));
  return errno == ENOSPC || errno == EDQUOT
             ? MakeError(absl::StatusCode::kResourceExhausted, reason::kDiskFull, message)
             : absl::InternalError(message);
}

absl::Status WriteAt(int fd, int64_t offset, absl::string_view bytes, absl::string_view what) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno != EINTR) {
      return FileError(absl::StrCat("write ", what, " at offset ", offset));
    }
    const int64_t written = std::max<ssize_t>(count, 0);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status ReadInto(int fd, int64_t offset, std::span<std::byte> target, absl::string_view what) {
  while (!target.empty()) {
    const ssize_t count = ::pread(fd, target.data(), target.size(), offset);
    if (count < 0 && errno != EINTR) {
      return FileError(absl::StrCat("read ", what, " at offset ", offset));
    }
    if (count == 0) {
      return absl::InternalError(absl::StrCat("read ", what, " at offset ", offset,
                                              ": it ends there, wanted ", target.size(),
                                              " more bytes"));
    }
    const int64_t read = std::max<ssize_t>(count, 0);
    target = target.subspan(static_cast<size_t>(read));
    offset += read;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAt(int fd, int64_t offset, int64_t size, absl::string_view what) {
  std::string bytes(static_cast<size_t>(size), '\0');
  RETURN_IF_ERROR(ReadInto(fd, offset, std::as_writable_bytes(std::span(bytes)), what));
  return bytes;
}

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::Create(const std::string& directory) {
  std::string path = directory + "/scratch-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) {
    return FileError(absl::StrCat("create a scratch file in ", directory));
  }
  ::unlink(path.c_str());
  return std::unique_ptr<ScratchFile>(new ScratchFile(fd));
}

ScratchFile::~ScratchFile() {
  ::close(fd_);
}

absl::StatusOr<int64_t> ScratchFile::Append(absl::string_view bytes) {
  const int64_t offset = flushed_bytes_ + static_cast<int64_t>(pending_.size());
  pending_.append(bytes.data(), bytes.size());
  if (pending_.size() >= kFlushBytes) {
    RETURN_IF_ERROR(Flush());
  }
  return offset;
}

absl::Status ScratchFile::Flush() {
  RETURN_IF_ERROR(WriteAt(fd_, flushed_bytes_, pending_, "scratch file"));
  flushed_bytes_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
  return absl::OkStatus();
}

}  // namespace nightshift
