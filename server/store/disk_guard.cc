#include "server/store/disk_guard.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"

namespace nightshift {

DiskGuard::DiskGuard(DiskGuardOptions options) : options_(std::move(options)) {
  struct stat found = {};
  const bool exists = ::stat(options_.path.c_str(), &found) == 0;
  if (options_.ballast_bytes == 0) {
    if (exists) {
      ::unlink(options_.path.c_str());
    }
    return;
  }
  // Blocks, not the size: a file with a hole holds no room.
  constexpr int64_t kBlockBytes = 512;
  if (exists && found.st_size == options_.ballast_bytes &&
      found.st_blocks * kBlockBytes >= options_.ballast_bytes) {
    return;
  }
  if (!Refill()) {
    full_.store(true);
    LOG(ERROR) << "disk_full path=" << options_.path << " action=pause reason=\""
               << CheckRoom().message() << "\"";
  }
}

DiskGuard::~DiskGuard() {
  StopWatching();
}

bool DiskGuard::MakeRoom() {
  {
    MutexLock lock(mutex_);
    if (options_.ballast_bytes == 0 || full_.load()) {
      return false;
    }
    full_.store(true);
    GiveUp();
    changed_.NotifyAll();
  }
  LOG(ERROR) << "disk_full path=" << options_.path << " action=pause reason=\""
             << CheckRoom().message() << "\"";
  Tell();
  return true;
}

absl::Status DiskGuard::CheckRoom() const {
  if (!full_.load()) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the disk of ", options_.path, " is full; nothing runs and no job is accepted ",
                   "until ", 2 * options_.ballast_bytes,
                   " bytes are free: delete jobs or free space"));
}

void DiskGuard::Watch(std::function<void()> on_change) {
  {
    MutexLock lock(mutex_);
    watching_ = true;
    on_change_ = std::move(on_change);
  }
  thread_ = std::thread([this] { Work(); });
}

void DiskGuard::StopWatching() {
  {
    MutexLock lock(mutex_);
    watching_ = false;
    changed_.NotifyAll();
    while (telling_ > 0) {
      changed_.Wait(mutex_);
    }
    on_change_ = nullptr;
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void DiskGuard::Work() {
  for (;;) {
    bool refilled = false;
    {
      MutexLock lock(mutex_);
      while (watching_ && !full_.load()) {
        changed_.Wait(mutex_);
      }
      if (watching_) {
        changed_.WaitFor(mutex_, std::chrono::microseconds(options_.retry_interval_us));
      }
      if (!watching_) {
        return;
      }
      refilled = full_.load() && Refill();
      full_.store(!refilled);
    }
    if (refilled) {
      LOG(INFO) << "disk_has_room path=" << options_.path << " action=resume";
      Tell();
    }
  }
}

bool DiskGuard::Refill() {
  std::error_code error;
  const std::filesystem::space_info space =
      std::filesystem::space(std::filesystem::path(options_.path).parent_path(), error);
  if (error || space.available < 2 * static_cast<uintmax_t>(options_.ballast_bytes)) {
    return false;
  }
  const int fd =
      ::open(options_.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool whole = fd >= 0 && ::fallocate(fd, 0, 0, options_.ballast_bytes) == 0;
  const int error_number = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  if (whole) {
    return true;
  }
  LOG(WARNING) << "ballast_refused path=" << options_.path << " bytes=" << options_.ballast_bytes
               << " error=\"" << strerror(error_number) << "\"";
  GiveUp();
  // A filesystem that cannot reserve space does without: there is room, as was seen.
  return error_number == EOPNOTSUPP;
}

void DiskGuard::GiveUp() {
  ::unlink(options_.path.c_str());
}

void DiskGuard::Tell() {
  std::function<void()> on_change;
  {
    MutexLock lock(mutex_);
    if (!watching_) {
      return;
    }
    ++telling_;
    on_change = on_change_;
  }
  on_change();
  MutexLock lock(mutex_);
  --telling_;
  changed_.NotifyAll();
}

}  // namespace nightshift
