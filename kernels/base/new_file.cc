#include "kernels/base/new_file.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status ErrnoError(absl::string_view attempted, absl::string_view path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(attempted, " ", path));
}

absl::Status WriteAndSync(int fd, absl::string_view bytes, absl::string_view path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return ErrnoError("write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : ErrnoError("sync", path);
}

}  // namespace

absl::Status CheckNoFile(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("write ", path, ": it exists; remove it or name another file"));
  }
  return errno == ENOENT ? absl::OkStatus() : ErrnoError("look for", path);
}

absl::Status WriteNewFile(const std::string& path, absl::string_view bytes) {
  RETURN_IF_ERROR(CheckNoFile(path));
  const std::string aside = path + ".part";
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return ErrnoError("open", aside);
  }
  absl::Status status = WriteAndSync(fd, bytes, aside);
  close(fd);
  if (status.ok() && std::rename(aside.c_str(), path.c_str()) != 0) {
    status = ErrnoError("rename", aside);
  }
  if (!status.ok()) {
    unlink(aside.c_str());
  }
  return status;
}

}  // namespace nightshift
