#include "engine/model/source_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status OpenError(const std::string& path, int error) {
  const std::string message = absl::StrCat("opening ", path, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(message);
  }
  if (error == ELOOP) {
    return absl::InvalidArgumentError(
        absl::StrCat(message, "; symbolic links are not followed here"));
  }
  return absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<SourceFile> SourceFile::Open(const std::string& path, Links links) {
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("opening a file whose name contains a NUL byte");
  }
  // O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kNoLinks ? O_NOFOLLOW : 0);
  const int fd = open(path.c_str(), flags);
  if (fd < 0) {
    return OpenError(path, errno);
  }
  SourceFile file(path, fd, 0);
  struct stat information {};
  if (fstat(fd, &information) != 0) {
    return OpenError(path, errno);
  }
  if (!S_ISREG(information.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("opening ", path, ": not a regular file"));
  }
  file.bytes_ = information.st_size;
  return file;
}

SourceFile::SourceFile(std::string path, int fd, int64_t bytes)
    : path_(std::move(path)), fd_(fd), bytes_(bytes) {}

SourceFile::SourceFile(SourceFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

SourceFile& SourceFile::operator=(SourceFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SourceFile::~SourceFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

absl::Status SourceFile::Read(int64_t offset, std::span<std::byte> target) const {
  size_t done = 0;
  while (done < target.size()) {
    const ssize_t count =
        pread(fd_, target.data() + done, target.size() - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return absl::DataLossError(absl::StrCat("reading ", target.size(), " bytes of ", path_,
                                              " at offset ", offset, ": ", std::strerror(errno)));
    }
    if (count == 0) {
      return absl::DataLossError(absl::StrCat("reading ", target.size(), " bytes of ", path_,
                                              " at offset ", offset, ": the file ends after ",
                                              done));
    }
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SourceFile::Digest() const {
  constexpr int64_t kPieceBytes = 1 << 20;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPieceBytes, bytes_)));
  Xxh3Stream stream;
  for (int64_t offset = 0; offset < bytes_; offset += kPieceBytes) {
    const std::span<std::byte> part =
        std::span(piece).first(static_cast<size_t>(std::min(kPieceBytes, bytes_ - offset)));
    RETURN_IF_ERROR(Read(offset, part));
    stream.Update(part);
  }
  return stream.Digest();
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes,
                                         SourceFile::Links links) {
  ASSIGN_OR_RETURN(const SourceFile file, SourceFile::Open(path, links));
  if (file.bytes() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("reading ", path, ": ", file.bytes(),
                                                   " bytes, at most ", max_bytes, " are taken"));
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  RETURN_IF_ERROR(file.Read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace nightshift
