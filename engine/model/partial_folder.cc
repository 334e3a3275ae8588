#include "engine/model/partial_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kMarker[] = ".partial-";

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

absl::Status SystemError(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(message);
  }
  return error == EEXIST || error == ENOTEMPTY ? absl::AlreadyExistsError(message)
                                               : absl::FailedPreconditionError(message);
}

absl::Status NoParent(const std::string& path, const std::string& parent) {
  return absl::NotFoundError(absl::StrCat("creating folder ", path, ": there is no folder ", parent,
                                          " to put it in; make that first"));
}

std::vector<std::string> EntriesOf(int folder_fd) {
  std::vector<std::string> names;
  const int copy = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const folder = copy < 0 ? nullptr : fdopendir(copy);
  if (folder == nullptr) {
    if (copy >= 0) {
      close(copy);
    }
    return names;
  }
  while (const dirent* const entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
  closedir(folder);
  return names;
}

// Removes a folder that holds plain files only, as ours do; anything else in it stops the removal.
void RemoveFlatFolder(int parent_fd, const std::string& name, int folder_fd) {
  for (const std::string& entry : EntriesOf(folder_fd)) {
    unlinkat(folder_fd, entry.c_str(), 0);
  }
  unlinkat(parent_fd, name.c_str(), AT_REMOVEDIR);
}

void RemoveLeftovers(int parent_fd, const std::string& target_name) {
  for (const std::string& name : EntriesOf(parent_fd)) {
    if (!absl::StartsWith(name, target_name + kMarker) || !IsPartialFolder(name)) {
      continue;
    }
    const int fd = openat(parent_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
      continue;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      RemoveFlatFolder(parent_fd, name, fd);
    }
    close(fd);
  }
}

absl::Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return SystemError(absl::StrCat("opening folder ", path), errno);
  }
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : SystemError(absl::StrCat("syncing folder ", path), error);
}

}  // namespace

bool IsPartialFolder(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  const size_t marker = path.rfind(kMarker);
  if (marker == absl::string_view::npos) {
    return false;
  }
  const absl::string_view number = path.substr(marker + sizeof(kMarker) - 1);
  bool digits = !number.empty();
  for (const char character : number) {
    digits = digits && absl::ascii_isdigit(static_cast<unsigned char>(character));
  }
  return digits;
}

absl::Status CheckFreeDisk(const std::string& path, int64_t bytes) {
  const std::string parent = ParentOf(WithoutTrailingSlashes(path));
  struct statvfs information {};
  if (statvfs(parent.c_str(), &information) != 0 && errno == ENOENT) {
    return NoParent(path, parent);
  }
  if (statvfs(parent.c_str(), &information) != 0) {
    return SystemError(absl::StrCat("asking for the free space of ", parent), errno);
  }
  const uint64_t free_bytes = information.f_bavail * information.f_frsize;
  if (bytes < 0 || static_cast<uint64_t>(bytes) > free_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("writing ", path, " takes ", bytes, " bytes, ",
                                                     parent, " has ", free_bytes,
                                                     " free; free some or choose another disk"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PartialFolder>> PartialFolder::Create(const std::string& target) {
  const std::string clean = WithoutTrailingSlashes(target);
  const std::string name = NameOf(clean);
  if (name.empty() || name == "." || name == ".." || clean.find('\0') != std::string::npos ||
      IsPartialFolder(clean)) {
    return absl::InvalidArgumentError(
        absl::StrCat("creating folder ", clean, ": not a usable name"));
  }
  const std::string parent = ParentOf(clean);
  const int parent_fd = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent_fd < 0 && errno == ENOENT) {
    return NoParent(clean, parent);
  }
  if (parent_fd < 0) {
    return SystemError(absl::StrCat("opening folder ", parent), errno);
  }
  RemoveLeftovers(parent_fd, name);
  struct stat information {};
  const bool exists = fstatat(parent_fd, name.c_str(), &information, AT_SYMLINK_NOFOLLOW) == 0;
  close(parent_fd);
  if (exists) {
    return absl::AlreadyExistsError(
        absl::StrCat("creating folder ", clean, ": it exists; remove it or choose another name"));
  }
  const std::string path = absl::StrCat(clean, kMarker, getpid());
  if (mkdir(path.c_str(), 0700) != 0) {
    return SystemError(absl::StrCat("creating folder ", path), errno);
  }
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (fd >= 0) {
      close(fd);
    }
    return SystemError(absl::StrCat("locking folder ", path), error);
  }
  return std::make_unique<PartialFolder>(clean, path, fd);
}

PartialFolder::PartialFolder(std::string target, std::string path, int fd)
    : target_(std::move(target)), path_(std::move(path)), fd_(fd) {}

PartialFolder::~PartialFolder() {
  if (!published_) {
    RemoveFlatFolder(AT_FDCWD, path_, fd_);
  }
  close(fd_);
}

absl::Status PartialFolder::Publish() {
  if (fsync(fd_) != 0) {
    return SystemError(absl::StrCat("syncing folder ", path_), errno);
  }
  // Not over something that appeared meanwhile; file systems without that flag get plain rename,
  // which replaces at most an empty folder.
  int result = renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  if (result != 0 && errno == EINVAL) {
    result = std::rename(path_.c_str(), target_.c_str());
  }
  if (result != 0) {
    return SystemError(absl::StrCat("renaming ", path_, " to ", target_), errno);
  }
  published_ = true;
  return SyncFolder(ParentOf(target_));
}

}  // namespace nightshift
