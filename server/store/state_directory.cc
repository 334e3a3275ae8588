#include "server/store/state_directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/clock.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kJobsFolder[] = "jobs";
constexpr char kUploadsFolder[] = "uploads";
constexpr char kDrainedFile[] = "drained";

// A daemon that is killed while it spawns its engine's process leaves the lock to that until it has
// begun: whoever restarts the daemon at once must not be refused for it.
constexpr int64_t kLockPatienceUs = 1'000'000;
constexpr int64_t kLockRetryUs = 10'000;

// Source: linux/magic.h and the filesystems' own headers.
constexpr std::array<int64_t, 10> kNetworkMagics = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x0BD00BD0,  // Lustre
    0x00C36400,  // Ceph
    0x5346414F,  // AFS
    0x73757245,  // Coda
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
};

absl::Status Refusal(const std::string& tried, const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(tried, " ", path, ": ", strerror(errno)));
}

absl::Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) {
    std::filesystem::create_directories(parent, error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat("make folder ", parent.string(), ": ", error.message()));
    }
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Refusal("make folder", path);
  }
  return absl::OkStatus();
}

absl::Status RefuseNetworkFilesystem(const std::string& path) {
  struct statfs filesystem = {};
  if (statfs(path.c_str(), &filesystem) != 0) {
    return Refusal("ask the filesystem of", path);
  }
  // f_type is signed and 32 bits wide on some machines: compare the low half.
  const int64_t magic = static_cast<int64_t>(filesystem.f_type) & 0xFFFFFFFF;
  if (IsNetworkFilesystem(magic)) {
    return absl::FailedPreconditionError(absl::StrCat("state directory ", path,
                                                      " lies on a network filesystem (type ",
                                                      absl::Hex(magic), "); choose a local disk"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> TakeLock(const std::string& folder) {
  const std::string path = folder + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return Refusal("open", path);
  }
  const RealClock clock;
  const int64_t until_us = clock.MonotonicMicros() + kLockPatienceUs;
  bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  while (!locked && errno == EWOULDBLOCK && clock.MonotonicMicros() < until_us) {
    clock.WaitUntil(clock.MonotonicMicros() + kLockRetryUs);
    locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  }
  if (locked) {
    return fd;
  }
  const absl::Status refusal =
      errno == EWOULDBLOCK
          ? absl::FailedPreconditionError(absl::StrCat(
                "state directory ", folder,
                " is in use by another nightshiftd; stop it or choose another directory"))
          : Refusal("lock", path);
  close(fd);
  return refusal;
}

absl::Status RemoveFilesIn(const std::string& root, const std::string& folder,
                           const std::set<std::string>& keep) {
  std::error_code error;
  int64_t removed = 0;
  const std::string path = absl::StrCat(root, "/", folder);
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = absl::StrCat(folder, "/", entry.path().filename().string());
    const bool kept = keep.count(name) != 0 || absl::EndsWith(name, kKeptUploadSuffix);
    if (!kept && entry.is_regular_file(error)) {
      removed += unlink(entry.path().c_str()) == 0 ? 1 : 0;
    }
  }
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat("list ", path, ": ", error.message()));
  }
  if (removed > 0) {
    LOG(INFO) << "stray_files_removed folder=" << path << " files=" << removed;
  }
  return absl::OkStatus();
}

}  // namespace

bool IsNetworkFilesystem(int64_t magic) {
  return std::find(kNetworkMagics.begin(), kNetworkMagics.end(), magic) != kNetworkMagics.end();
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return Refusal("open folder", path);
  }
  const int result = fsync(fd);
  const int error_number = errno;
  close(fd);
  if (result != 0) {
    return absl::InternalError(absl::StrCat("sync folder ", path, ": ", strerror(error_number)));
  }
  return absl::OkStatus();
}

absl::Status StateDirectory::Check(const std::string& path) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(folder, error) && folder.has_parent_path() &&
         folder != folder.parent_path()) {
    folder = folder.parent_path();  // it would be made
  }
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "use ", path, ": ", folder.string(), " is no folder; name another"));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return Refusal("write in", folder.string());
  }
  return RefuseNetworkFilesystem(folder.string());
}

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Open(const std::string& path) {
  RETURN_IF_ERROR(MakePrivateFolder(path));
  RETURN_IF_ERROR(RefuseNetworkFilesystem(path));
  ASSIGN_OR_RETURN(const int lock_fd, TakeLock(path));
  std::unique_ptr<StateDirectory> directory(new StateDirectory(path, lock_fd));
  RETURN_IF_ERROR(MakePrivateFolder(directory->jobs_path()));
  RETURN_IF_ERROR(MakePrivateFolder(directory->uploads_path()));
  RETURN_IF_ERROR(SyncDirectory(path));
  return directory;
}

StateDirectory::~StateDirectory() {
  close(lock_fd_);
}

std::string StateDirectory::database_path() const {
  return path_ + "/store.sqlite";
}

std::string StateDirectory::ballast_path() const {
  return path_ + "/ballast";
}

std::string StateDirectory::jobs_path() const {
  return absl::StrCat(path_, "/", kJobsFolder);
}

std::string StateDirectory::tls_path() const {
  return path_ + "/tls";
}

std::string StateDirectory::uploads_path() const {
  return absl::StrCat(path_, "/", kUploadsFolder);
}

bool StateDirectory::IsDrained() const {
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(path_, "/", kDrainedFile), error);
}

absl::Status StateDirectory::KeepDrained(bool drained) const {
  const std::string path = absl::StrCat(path_, "/", kDrainedFile);
  if (!drained) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return Refusal("remove", path);
    }
    return SyncDirectory(path_);
  }
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) {
    return errno == ENOSPC || errno == EDQUOT
               ? absl::ResourceExhaustedError(absl::StrCat("make ", path, ": ", strerror(errno)))
               : Refusal("make", path);
  }
  RETURN_IF_ERROR(SyncFile(file.get(), path));
  return SyncDirectory(path_);
}

absl::Status StateDirectory::RemoveStrayFiles(const std::vector<std::string>& keep) const {
  const std::set<std::string> kept(keep.begin(), keep.end());
  RETURN_IF_ERROR(RemoveFilesIn(path_, kUploadsFolder, kept));
  return RemoveFilesIn(path_, kJobsFolder, kept);
}

}  // namespace nightshift
