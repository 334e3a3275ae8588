#include "server/security/tls_rotation.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kCurrent[] = "current";

absl::Status WriteSecret(const std::string& path, absl::string_view text) {
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) {
    return ErrnoStatus("write", path);
  }
  return WriteAll(file.get(), text, path);
}

absl::Status MakeEmptyFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (::mkdir(path.c_str(), S_IRWXU) != 0) {
    const absl::Status status = ErrnoStatus("make folder", path);
    return absl::FailedPreconditionError(status.message());
  }
  return absl::OkStatus();
}

std::string TimeText(int64_t time_us) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMicros(time_us), absl::UTCTimeZone());
}

bool IsSame(const TlsPair& a, const TlsPair& b) {
  return a.certificate == b.certificate && a.key == b.key && a.client_ca == b.client_ca;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsRotation>> TlsRotation::Create(TlsFiles files, std::string folder,
                                                                 const Clock& clock) {
  ASSIGN_OR_RETURN(const TlsPair pair, ReadTlsPair(files, clock.WallMicros()));
  RETURN_IF_ERROR(MakeEmptyFolder(folder));
  std::unique_ptr<TlsRotation> rotation(
      new TlsRotation(std::move(files), std::move(folder), clock));
  MutexLock lock(rotation->mutex_);
  RETURN_IF_ERROR(rotation->Serve(pair));
  return rotation;
}

void TlsRotation::Reload() {
  absl::StatusOr<TlsPair> pair = ReadTlsPair(files_, clock_.WallMicros());
  MutexLock lock(mutex_);
  if (pair.ok() && IsSame(*pair, pair_)) {
    problem_.clear();
    return;
  }
  const absl::Status status = pair.ok() ? Serve(*pair) : pair.status();
  if (status.ok()) {
    problem_.clear();
    return;
  }
  if (problem_ != status.message()) {
    problem_ = std::string(status.message());
    LOG(ERROR) << "tls_certificate_refused error=\"" << problem_
               << "\" action=\"the one before is served\"";
  }
}

absl::Status TlsRotation::Serve(const TlsPair& pair) {
  const std::string name = absl::StrCat("pair-", num_served_ % 2);
  const std::string target = absl::StrCat(folder_, "/", name);
  RETURN_IF_ERROR(MakeEmptyFolder(target));
  RETURN_IF_ERROR(WriteSecret(target + "/certificate.pem", pair.certificate));
  RETURN_IF_ERROR(WriteSecret(target + "/key.pem", pair.key));
  RETURN_IF_ERROR(WriteSecret(target + "/client_ca.pem", pair.client_ca));
  const std::string aside = absl::StrCat(folder_, "/next");
  ::unlink(aside.c_str());
  if (::symlink(name.c_str(), aside.c_str()) != 0 ||
      ::rename(aside.c_str(), absl::StrCat(folder_, "/", kCurrent).c_str()) != 0) {
    return ErrnoStatus("turn the link to", target);
  }
  ++num_served_;
  pair_ = pair;
  LOG(INFO) << "tls_certificate_served expires=" << TimeText(pair_.expire_time_us);
  return absl::OkStatus();
}

TlsState TlsRotation::state() const {
  MutexLock lock(mutex_);
  return {.expire_time_us = pair_.expire_time_us, .problem = problem_};
}

TlsFiles TlsRotation::served() const {
  const std::string current = absl::StrCat(folder_, "/", kCurrent);
  return {.certificate = current + "/certificate.pem",
          .key = current + "/key.pem",
          .client_ca = files_.client_ca.empty() ? "" : current + "/client_ca.pem"};
}

}  // namespace nightshift
