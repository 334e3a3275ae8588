// StateDirectory: the folder that holds everything the daemon must not lose, owned by one daemon.
//
//   lock         held (flock) for the daemon's life
//   store.sqlite jobs, rows, results
//   drained      there while an administrator wants nothing to run
//   ballast      room that is given up when the disk is full
//   jobs/        one immutable input file a job
//   prompts/     token ids of prompts that were checked; may be lost
//   tls/         the certificate that is served; made anew at each start
//   uploads/     inputs that are being received; those of interrupted uploads for a day
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

// True for filesystems whose locks and shared memory SQLite cannot rely on. `magic`: statfs f_type.
bool IsNetworkFilesystem(int64_t magic);

// Ends the names of files under uploads/ that are kept for their sender to go on with.
inline constexpr char kKeptUploadSuffix[] = ".part";

// Syncs a folder, so that names made, moved or removed in it survive power loss.
absl::Status SyncDirectory(const std::string& path);

// Holds the lock until destroyed. Immutable, thread-safe.
class StateDirectory {
 public:
  // Makes what is missing (folders 0700) and takes the lock, for which it waits up to a second.
  // Errors: FAILED_PRECONDITION (another daemon holds it, network filesystem, no permission), with
  // the path.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Open(const std::string& path);
  // Whether Open could make and use it, but for the lock; makes nothing.
  static absl::Status Check(const std::string& path);
  ~StateDirectory();
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string database_path() const;
  std::string ballast_path() const;
  std::string jobs_path() const;
  std::string uploads_path() const;
  // Where the daemon lays the certificate that it serves with; made by whoever does.
  std::string tls_path() const;

  // Whether an administrator has drained the daemon, also before this start.
  bool IsDrained() const;
  // Keeps it, durably. One call at a time. Errors: FAILED_PRECONDITION, RESOURCE_EXHAUSTED (disk
  // full), naming the file.
  absl::Status KeepDrained(bool drained) const;

  // Removes uploads that nobody can finish and inputs of no job: what a crash between a file's and
  // its record's change leaves. `keep`: JobStore::InputFiles, relative to path(). For the start,
  // before anything is received.
  absl::Status RemoveStrayFiles(const std::vector<std::string>& keep) const;

 private:
  StateDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
};

}  // namespace nightshift
