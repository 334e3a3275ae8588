#include "engine/io/disk_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

absl::Status FileError(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

int64_t FreeBytes(const std::string& folder) {
  struct statvfs information {};
  return statvfs(folder.c_str(), &information) == 0
             ? static_cast<int64_t>(information.f_bavail * information.f_frsize)
             : 0;
}

}  // namespace

DiskFile::DiskFile(std::string path, int fd, bool is_direct)
    : path_(std::move(path)), fd_(fd), is_direct_(is_direct) {}

absl::StatusOr<DiskFile> DiskFile::Open(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
  int fd = open(path.c_str(), kFlags | O_DIRECT);
  const bool is_direct = fd >= 0;
  if (fd < 0 && errno == EINVAL) {
    fd = open(path.c_str(), kFlags);
  }
  if (fd < 0) {
    return FileError(absl::StrCat("open ", path), errno);
  }
  DiskFile file(path, fd, is_direct);
  struct stat information {};
  if (fstat(fd, &information) != 0) {
    return FileError(absl::StrCat("open ", path), errno);
  }
  file.bytes_ = information.st_size;
  return file;
}

absl::StatusOr<DiskFile> DiskFile::CreateSpill(const std::string& folder, int64_t bytes) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_TMPFILE;
  int fd = open(folder.c_str(), kFlags | O_DIRECT, 0600);
  const bool is_direct = fd >= 0;
  if (fd < 0 && errno == EINVAL) {
    fd = open(folder.c_str(), kFlags, 0600);
  }
  if (fd < 0) {
    return FileError(absl::StrCat("make a spill file in ", folder), errno);
  }
  DiskFile file(folder, fd, is_direct);
  const int error = posix_fallocate(fd, 0, bytes);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::UnavailableError(absl::StrCat("reserve a spill file in ", folder, ": asked ",
                                               bytes, " bytes, free ", FreeBytes(folder),
                                               "; free disk space or lower the share on disk"));
  }
  if (error != 0) {
    return FileError(absl::StrCat("reserve ", bytes, " bytes of a spill file in ", folder), error);
  }
  file.bytes_ = bytes;
  return file;
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      is_direct_(other.is_direct_) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  std::swap(is_direct_, other.is_direct_);
  return *this;
}

DiskFile::~DiskFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

}  // namespace nightshift
