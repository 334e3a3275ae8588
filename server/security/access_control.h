// AccessControl: the access file that is in force. A wrong file never takes the place of a right
// one, so that a slip in an editor locks nobody out and lets nobody in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"
#include "server/security/access_list.h"

namespace nightshift {

// Reads an access file. Errors: NOT_FOUND, FAILED_PRECONDITION (others than its owner and group can
// read it, or others than its owner can write it), INVALID_ARGUMENT (a line), each naming the file.
absl::StatusOr<AccessList> ReadAccessFile(const std::string& path);

// Thread-safe.
class AccessControl {
 public:
  // An empty path: no file, everybody who reaches the daemon may do everything. Errors: as
  // ReadAccessFile.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Create(const std::string& path);

  // Null when there is no file.
  std::shared_ptr<const AccessList> current() const;

  // A call was refused: `what` tells which, why and whose, and no secret. Logged with how many
  // there were since the last line, at most every ten seconds.
  void NoteRefusal(absl::string_view what, int64_t now_us) const;

  // Reads the file again. On an error, which is as ReadAccessFile's, the last good one stays.
  absl::Status Reload();

 private:
  explicit AccessControl(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  mutable Mutex mutex_;
  // Shared: calls look into it while another takes its place.
  std::shared_ptr<const AccessList> current_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t num_refused_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last line about them
  mutable int64_t refusals_logged_us_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace nightshift
