// A disk that fails and forgets, for tests of the daemon: loaded into it by LD_PRELOAD, it stands in
// front of every call that changes or opens a file below $DISK_FAULTS_FOLDER, SQLite's among them.
// It leaves other folders and other processes (the engine, tools) alone.
//
//   $DISK_FAULTS_COUNTS  a file of two 64-bit numbers: calls so far, and which of them failed (0: none)
//   $DISK_FAULTS_AT      "17 EIO": the 17th call ends so. EIO, ENOSPC; EINTR (the first write from
//                        there on); short (a write of half the bytes; other calls end with ENOSPC)
//   $DISK_FAULTS_STALL   syncs stand still while there is a file of this name
//   $DISK_FAULTS_LOG     gets a record of each change and each sync, in their order, from which
//                        tests/e2e/power_loss.py makes what a machine that stops would find
//
// Calls run one at a time, so that the record's order is that of the disk.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// As power_loss.py reads them.
enum class Change : uint32_t {
  kCreate = 1,
  kWrite = 2,
  kCut = 3,
  kSync = 4,
  kRename = 5,
  kRemove = 6,
};

// One record of the log; path, target and data follow it.
struct Record {
  uint32_t change;
  uint32_t path_bytes;
  uint32_t target_bytes;
  uint32_t unused;
  uint64_t inode;
  uint64_t offset;
  uint64_t data_bytes;
};

struct Counts {
  std::atomic<int64_t> calls;
  std::atomic<int64_t> failed;  // the call's number
};

struct Fault {
  int64_t at = 0;  // 0: none
  int error = 0;
  bool is_short = false;
};

bool IsServing() {
  // A subcommand's name comes first; options begin with a dash.
  std::array<char, 4096> line{};
  const int fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0));
  const auto size = static_cast<size_t>(
      std::max(ssize_t{0}, static_cast<ssize_t>(syscall(SYS_read, fd, line.data(), line.size() - 1))));
  syscall(SYS_close, fd);
  const size_t first = std::strlen(line.data()) + 1;
  return std::strstr(line.data(), "nightshiftd") != nullptr &&
         (first >= size || line[first] == '-');
}

Fault ReadFault() {
  const char* const text = std::getenv("DISK_FAULTS_AT");
  Fault fault;
  std::array<char, 8> error{};
  if (text == nullptr || std::sscanf(text, "%" SCNd64 " %7s", &fault.at, error.data()) != 2) {
    return {};
  }
  const std::string name = error.data();
  fault.is_short = name == "short";
  fault.error = name == "EIO" ? EIO : name == "EINTR" ? EINTR : ENOSPC;
  return fault;
}

class Disk {
 public:
  static Disk& Get() {
    static Disk disk;
    return disk;
  }

  int Open(const char* path, int flags, mode_t mode) {
    if (!IsBelow(path)) {
      return RawOpen(path, flags, mode);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("open", path)) {
      return -1;
    }
    struct stat found = {};
    const bool existed = ::stat(path, &found) == 0;
    const int fd = RawOpen(path, flags, mode);
    if (fd < 0 || ::fstat(fd, &found) != 0) {
      return fd;
    }
    if (static_cast<size_t>(fd) < inodes_.size()) {
      inodes_[static_cast<size_t>(fd)] = found.st_ino;
    }
    if (!existed) {
      Log({.change = Change::kCreate, .inode = found.st_ino, .path = path});
    } else if ((flags & O_TRUNC) != 0) {
      Log({.change = Change::kCut, .inode = found.st_ino});
    }
    return fd;
  }

  int MakeUnique(char* pattern, int flags) {
    std::random_device random;
    char* const end = pattern + std::strlen(pattern) - 6;
    for (;;) {
      std::snprintf(end, 7, "%06x", random() & 0xFFFFFFU);
      const int fd = Open(pattern, flags | O_RDWR | O_CREAT | O_EXCL, 0600);
      if (fd >= 0 || errno != EEXIST) {
        return fd;
      }
    }
  }

  int Close(int fd) {
    if (Inode(fd) != 0) {
      inodes_[static_cast<size_t>(fd)] = 0;
    }
    return static_cast<int>(syscall(SYS_close, fd));
  }

  ssize_t Write(int fd, const void* data, size_t bytes, off_t offset, bool at_position) {
    if (Inode(fd) == 0) {
      return RawWrite(fd, data, bytes, offset, at_position);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("write", "", bytes > 1)) {
      if (errno != 0) {
        return -1;
      }
      bytes /= 2;
    }
    const off_t place = at_position ? ::lseek(fd, 0, SEEK_CUR) : offset;
    const ssize_t written = RawWrite(fd, data, bytes, offset, at_position);
    if (written > 0) {
      Log({.change = Change::kWrite,
           .inode = Inode(fd),
           .offset = static_cast<uint64_t>(place),
           .data = data,
           .data_bytes = static_cast<size_t>(written)});
    }
    return written;
  }

  int Sync(int fd, int64_t call) {
    if (Inode(fd) == 0) {
      return static_cast<int>(syscall(call, fd));
    }
    while (stall_ != nullptr && ::access(stall_, F_OK) == 0) {
      constexpr int kPauseMs = 5;
      ::poll(nullptr, 0, kPauseMs);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("sync", "")) {
      return -1;
    }
    const auto result = static_cast<int>(syscall(call, fd));
    if (result == 0) {
      Log({.change = Change::kSync, .inode = Inode(fd)});
    }
    return result;
  }

  int Cut(int fd, off_t size) {
    if (Inode(fd) == 0) {
      return static_cast<int>(syscall(SYS_ftruncate, fd, size));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("cut", "")) {
      return -1;
    }
    const auto result = static_cast<int>(syscall(SYS_ftruncate, fd, size));
    if (result == 0) {
      Log({.change = Change::kCut, .inode = Inode(fd), .offset = static_cast<uint64_t>(size)});
    }
    return result;
  }

  int Allocate(int fd, int mode, off_t offset, off_t size) {
    if (Inode(fd) == 0) {
      return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, size));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("allocate", "")) {
      return -1;
    }
    const auto result = static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, size));
    if (result == 0) {
      Log({.change = Change::kCut,
           .inode = Inode(fd),
           .offset = static_cast<uint64_t>(offset + size)});
    }
    return result;
  }

  int Rename(const char* path, const char* target) {
    if (!IsBelow(path)) {
      return RawRename(path, target);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("rename", path)) {
      return -1;
    }
    const int result = RawRename(path, target);
    if (result == 0) {
      Log({.change = Change::kRename, .path = path, .target = target});
    }
    return result;
  }

  int Remove(const char* path) {
    if (!IsBelow(path)) {
      return RawRemove(path);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Fails("remove", path)) {
      return -1;
    }
    const int result = RawRemove(path);
    if (result == 0) {
      Log({.change = Change::kRemove, .path = path});
    }
    return result;
  }

 private:
  struct Entry {
    Change change;
    uint64_t inode = 0;
    uint64_t offset = 0;
    const char* path = "";
    const char* target = "";
    const void* data = nullptr;
    size_t data_bytes = 0;
  };

  Disk() {
    const char* const folder = std::getenv("DISK_FAULTS_FOLDER");
    if (folder == nullptr || !IsServing()) {
      return;
    }
    folder_ = folder;
    folder_bytes_ = std::strlen(folder);
    fault_ = ReadFault();
    stall_ = std::getenv("DISK_FAULTS_STALL");
    if (const char* const path = std::getenv("DISK_FAULTS_COUNTS"); path != nullptr) {
      const int fd = RawOpen(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (fd >= 0 && syscall(SYS_ftruncate, fd, sizeof(Counts)) == 0) {
        void* const mapped =
            ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        counts_ = mapped == MAP_FAILED ? nullptr : static_cast<Counts*>(mapped);
      }
    }
    if (const char* const path = std::getenv("DISK_FAULTS_LOG"); path != nullptr) {
      log_fd_ = RawOpen(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
  }

  static int RawOpen(const char* path, int flags, mode_t mode) {
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  }
  static int RawRename(const char* path, const char* target) {
    return static_cast<int>(syscall(SYS_rename, path, target));
  }
  static int RawRemove(const char* path) { return static_cast<int>(syscall(SYS_unlink, path)); }
  static ssize_t RawWrite(int fd, const void* data, size_t bytes, off_t offset, bool at_position) {
    return at_position ? syscall(SYS_write, fd, data, bytes)
                       : syscall(SYS_pwrite64, fd, data, bytes, offset);
  }

  bool IsBelow(const char* path) const {
    return folder_ != nullptr && std::strncmp(path, folder_, folder_bytes_) == 0 &&
           (path[folder_bytes_] == '/' || path[folder_bytes_] == '\0');
  }
  uint64_t Inode(int fd) const {
    return fd < 0 || static_cast<size_t>(fd) >= inodes_.size()
               ? 0
               : inodes_[static_cast<size_t>(fd)].load();
  }

  // Counts a call; sets errno when it is the one that fails, to 0 for a write that is only short.
  bool Fails(const char* call, const char* path, bool can_be_short = false) {
    if (counts_ == nullptr) {
      return false;
    }
    const int64_t number = ++counts_->calls;
    const bool is_write = std::strcmp(call, "write") == 0;
    const bool may_fail = fault_.at > 0 && number >= fault_.at && counts_->failed == 0;
    if (!may_fail || (fault_.error == EINTR && !is_write)) {
      return false;
    }
    counts_->failed = number;
    dprintf(STDERR_FILENO, "disk_fault call=%s number=%" PRId64 " path=%s error=%s\n", call,
            number, path, fault_.is_short ? "short" : strerror(fault_.error));
    errno = fault_.is_short && can_be_short ? 0 : fault_.error;
    return true;
  }

  void Log(const Entry& entry) {
    if (log_fd_ < 0) {
      return;
    }
    const int kept_error = errno;
    const Record record = {.change = static_cast<uint32_t>(entry.change),
                           .path_bytes = static_cast<uint32_t>(std::strlen(entry.path)),
                           .target_bytes = static_cast<uint32_t>(std::strlen(entry.target)),
                           .unused = 0,
                           .inode = entry.inode,
                           .offset = entry.offset,
                           .data_bytes = entry.data_bytes};
    std::string bytes(reinterpret_cast<const char*>(&record), sizeof(record));
    bytes += entry.path;
    bytes += entry.target;
    bytes.append(static_cast<const char*>(entry.data), entry.data_bytes);
    // One call, so that a kill leaves whole records, or the beginning of the last.
    syscall(SYS_write, log_fd_, bytes.data(), bytes.size());
    errno = kept_error;
  }

  const char* folder_ = nullptr;
  size_t folder_bytes_ = 0;
  const char* stall_ = nullptr;
  Fault fault_;
  Counts* counts_ = nullptr;
  int log_fd_ = -1;
  std::mutex mutex_;
  std::array<std::atomic<uint64_t>, 8192> inodes_{};  // of open files below the folder; 0: another
};

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

// As in fcntl.h, stdio.h, stdlib.h and unistd.h.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Disk::Get().Open(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Disk::Get().Open(path, flags, mode);
}

int mkostemp(char* pattern, int flags) { return Disk::Get().MakeUnique(pattern, flags); }
int close(int fd) { return Disk::Get().Close(fd); }

ssize_t write(int fd, const void* data, size_t bytes) {
  return Disk::Get().Write(fd, data, bytes, 0, /*at_position=*/true);
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return Disk::Get().Write(fd, data, bytes, offset, /*at_position=*/false);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return Disk::Get().Write(fd, data, bytes, offset, /*at_position=*/false);
}

int fsync(int fd) { return Disk::Get().Sync(fd, SYS_fsync); }
int fdatasync(int fd) { return Disk::Get().Sync(fd, SYS_fdatasync); }

int ftruncate(int fd, off_t size) noexcept { return Disk::Get().Cut(fd, size); }
int ftruncate64(int fd, off64_t size) noexcept { return Disk::Get().Cut(fd, size); }
int fallocate(int fd, int mode, off_t offset, off_t size) {
  return Disk::Get().Allocate(fd, mode, offset, size);
}

int rename(const char* path, const char* target) noexcept {
  return Disk::Get().Rename(path, target);
}
int unlink(const char* path) noexcept { return Disk::Get().Remove(path); }

}  // extern "C"
