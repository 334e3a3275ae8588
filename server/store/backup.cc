#include "server/store/backup.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/store/state_directory.h"

namespace nightshift {
namespace {

absl::Status Refusal(absl::string_view tried, const std::string& path) {
  const std::string message = absl::StrCat(tried, " ", path, ": ", strerror(errno));
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return full ? absl::ResourceExhaustedError(message) : absl::FailedPreconditionError(message);
}

class HeldFiles {
 public:
  explicit HeldFiles(Janitor& janitor) : janitor_(janitor) { janitor_.HoldFiles(); }
  ~HeldFiles() { janitor_.ReleaseFiles(); }
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

 private:
  Janitor& janitor_;
};

absl::Status MakeFolder(const std::string& path) {
  return ::mkdir(path.c_str(), 0700) == 0 ? absl::OkStatus() : Refusal("make folder", path);
}

// Links the input, or copies it to another filesystem. Its size.
absl::StatusOr<int64_t> TakeInput(const std::string& source, const std::string& target) {
  struct stat found = {};
  if (::stat(source.c_str(), &found) != 0) {
    return absl::DataLossError(
        absl::StrCat("input ", source, " of a job is not there: ", strerror(errno)));
  }
  if (::link(source.c_str(), target.c_str()) == 0) {
    return found.st_size;
  }
  std::error_code error;
  if (!std::filesystem::copy_file(source, target, error)) {
    errno = error.value();
    return Refusal("copy input to", target);
  }
  const FileDescriptor copy(::open(target.c_str(), O_RDONLY | O_CLOEXEC));
  RETURN_IF_ERROR(SyncFile(copy.get(), target));
  return found.st_size;
}

absl::StatusOr<BackupReport> CopyTo(SqliteJobStore& store, const std::string& state_directory,
                                    const std::string& folder) {
  RETURN_IF_ERROR(MakeFolder(folder + "/jobs"));
  RETURN_IF_ERROR(MakeFolder(folder + "/uploads"));
  const std::string database = folder + "/store.sqlite";
  RETURN_IF_ERROR(store.Backup(database));
  // Opening checks every page.
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteJobStore> copy,
                   SqliteJobStore::Open({.path = database, .is_backup = true}));
  ASSIGN_OR_RETURN(const std::vector<std::string> inputs, copy->InputFiles());
  BackupReport report;
  for (const std::string& input : inputs) {
    ASSIGN_OR_RETURN(const int64_t bytes, TakeInput(absl::StrCat(state_directory, "/", input),
                                                    absl::StrCat(folder, "/", input)));
    report.bytes += bytes;
  }
  report.jobs = static_cast<int64_t>(inputs.size());
  std::error_code error;
  report.bytes += static_cast<int64_t>(std::filesystem::file_size(database, error));
  return report;
}

// A copy inside of what it copies would be lost with it, and swept as a stray file.
absl::Status RefuseInside(const std::string& state_directory, const std::string& target) {
  std::error_code error;
  const std::filesystem::path state = std::filesystem::canonical(state_directory, error);
  const std::filesystem::path whole = std::filesystem::weakly_canonical(target, error);
  const auto ends = std::mismatch(state.begin(), state.end(), whole.begin(), whole.end());
  if (ends.first == state.end()) {
    return absl::InvalidArgumentError(absl::StrCat("backup folder ", target,
                                                   " lies in the state folder ", state.string(),
                                                   " itself; choose one outside of it"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BackupReport> BackupState(SqliteJobStore& store, Janitor& janitor,
                                         const std::string& state_directory,
                                         const std::string& target) {
  struct stat found = {};
  if (::lstat(target.c_str(), &found) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("backup folder ", target, " exists; choose a new one"));
  }
  RETURN_IF_ERROR(RefuseInside(state_directory, target));
  const std::string aside = target + ".part";
  RETURN_IF_ERROR(MakeFolder(aside));
  const HeldFiles held(janitor);
  absl::StatusOr<BackupReport> report = CopyTo(store, state_directory, aside);
  absl::Status status = report.status();
  for (const char* folder : {"/jobs", "/uploads", ""}) {
    if (status.ok()) {
      status = SyncDirectory(aside + folder);
    }
  }
  if (status.ok() && ::rename(aside.c_str(), target.c_str()) != 0) {
    status = Refusal("rename to", target);
  }
  if (!status.ok()) {
    std::error_code error;
    std::filesystem::remove_all(aside, error);
    return status;
  }
  RETURN_IF_ERROR(SyncDirectory(std::filesystem::path(target).parent_path()));
  LOG(INFO) << "backup_written path=" << target << " jobs=" << report->jobs
            << " bytes=" << report->bytes;
  return report;
}

}  // namespace nightshift
