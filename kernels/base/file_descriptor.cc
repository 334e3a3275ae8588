#include "kernels/base/file_descriptor.h"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {

void FileDescriptor::Close() {
  if (fd_ >= 0) {
    close(std::exchange(fd_, -1));
  }
}

absl::Status ErrnoStatus(absl::string_view attempted, absl::string_view path) {
  const int error = errno;
  const std::string context = absl::StrCat(attempted, " ", path);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(
          absl::StrCat(context, ": ", absl::ErrnoToStatus(error, "").message()));
    default:
      return absl::ErrnoToStatus(error, context);
  }
}

absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return ErrnoStatus("write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncFile(int fd, absl::string_view path) {
  return fsync(fd) == 0 ? absl::OkStatus() : ErrnoStatus("sync", path);
}

absl::Status SyncFolderOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) {
    return ErrnoStatus("open folder", folder);
  }
  // Some filesystems cannot sync a folder and say EINVAL: there is nothing more to do on them.
  if (fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoStatus("sync folder", folder);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    return ErrnoStatus("open", path);
  }
  std::string bytes;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(fd.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return ErrnoStatus("read", path);
    }
    if (count == 0) {
      return bytes;
    }
    bytes.append(buffer, static_cast<size_t>(count));
    if (static_cast<int64_t>(bytes.size()) > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", path, ": larger than ", max_bytes, " bytes"));
    }
  }
}

}  // namespace nightshift
