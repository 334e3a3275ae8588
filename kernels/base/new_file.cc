#include "kernels/base/new_file.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::Status CheckNoFile(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("write ", path, ": it exists; remove it or name another file"));
  }
  return errno == ENOENT ? absl::OkStatus() : ErrnoStatus("look for", path);
}

absl::Status WriteNewFile(const std::string& path, absl::string_view bytes) {
  RETURN_IF_ERROR(CheckNoFile(path));
  return ReplaceFile(path, bytes);
}

absl::Status CheckWritable(const std::string& path) {
  const std::string aside = path + ".part";
  struct stat info = {};
  if (path.empty() || path.back() == '/' ||
      (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) {
    return absl::InvalidArgumentError(
        absl::StrCat("write \"", path, "\": it names no file but a folder; name a file"));
  }
  const FileDescriptor fd(open(aside.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    return ErrnoStatus("open", aside);
  }
  return unlink(aside.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus("remove", aside);
}

absl::Status ReplaceFile(const std::string& path, absl::string_view bytes) {
  const std::string aside = path + ".part";
  const FileDescriptor fd(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    return ErrnoStatus("open", aside);
  }
  absl::Status status = WriteAll(fd.get(), bytes, aside);
  if (status.ok()) {
    status = SyncFile(fd.get(), aside);
  }
  if (status.ok() && std::rename(aside.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus("rename", aside);
  }
  if (!status.ok()) {
    unlink(aside.c_str());
  }
  return status;
}

}  // namespace nightshift
