#include "server/security/access_control.h"

#include <cstdint>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxFileBytes = 4 << 20;  // about 40,000 lines

absl::Status CheckMode(const std::string& path, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("access file ", path, " is no file"));
  }
  if (file.st_uid != 0 && file.st_uid != ::geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat("access file ", path, " belongs to user ",
                                                      file.st_uid, ", not to root or user ",
                                                      ::geteuid(), " who runs the daemon"));
  }
  if ((file.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("access file %s has mode %04o: others than its owner can write it, or "
                        "others than owner and "
                        "group can read it; chmod 640 %s",
                        path, file.st_mode & 07777U, path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AccessList> ReadAccessFile(const std::string& path) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) {
    return ErrnoStatus("read access file", path);
  }
  RETURN_IF_ERROR(CheckMode(path, file));
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxFileBytes));
  absl::StatusOr<AccessList> list = AccessList::Parse(text);
  if (!list.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("access file ", path, " ", list.status().message()));
  }
  return list;
}

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Create(const std::string& path) {
  std::unique_ptr<AccessControl> control(new AccessControl(path));
  RETURN_IF_ERROR(control->Reload());
  return control;
}

std::shared_ptr<const AccessList> AccessControl::current() const {
  MutexLock lock(mutex_);
  return current_;
}

void AccessControl::NoteRefusal(absl::string_view what, int64_t now_us) const {
  constexpr int64_t kLogIntervalUs = 10'000'000;
  int64_t count = 0;
  {
    MutexLock lock(mutex_);
    ++num_refused_;
    if (now_us - refusals_logged_us_ < kLogIntervalUs) {
      return;
    }
    count = std::exchange(num_refused_, 0);
    refusals_logged_us_ = now_us;
  }
  LOG(WARNING) << "calls_refused count=" << count << " last=\"" << what << "\"";
}

absl::Status AccessControl::Reload() {
  if (path_.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(AccessList list, ReadAccessFile(path_));
  auto next = std::make_shared<const AccessList>(std::move(list));
  MutexLock lock(mutex_);
  current_ = std::move(next);
  return absl::OkStatus();
}

}  // namespace nightshift
