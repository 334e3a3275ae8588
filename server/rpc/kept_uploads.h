// KeptUploads: uploads by their tenant and request_id, so that one that broke off can go on: over a
// connection, and over a crash of the daemon.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/rpc/upload.h"

namespace nightshift {

// What a tenant's upload is kept under, and its file named by: the request_id, or for another
// tenant than "default" a digest of both, which no request_id can be.
std::string UploadKey(const std::string& tenant, const std::string& request_id);

struct KeptUploadsOptions {
  std::string directory;
  int64_t keep_us = int64_t{24} * 3600 * 1'000'000;  // after the last byte
  // Of those that nobody sends; beyond, the oldest go.
  int64_t max_idle_uploads = 64;
  int64_t max_idle_bytes = int64_t{20} << 30;
};

struct UploadPosition {
  int64_t durable_bytes = 0;
  int64_t expire_time_us = 0;  // wall clock
};

// Thread-safe. Begin, Return and Forget do file operations, of Begin's a resumption after a restart
// reads the file: for task threads.
class KeptUploads {
 public:
  // Finds what an earlier run kept. `clock` must outlive it.
  KeptUploads(KeptUploadsOptions options, const Clock& clock);

  // Takes the upload of this key, at resume_offset, or a new one at 0; it is the caller's
  // until Return or Forget.
  // Errors: ABORTED (REQUEST_IN_PROGRESS, someone has it), FAILED_PRECONDITION
  // (UPLOAD_OFFSET_MISMATCH: nothing is kept, or not so much), RESOURCE_EXHAUSTED (disk full).
  absl::StatusOr<std::unique_ptr<Upload>> Begin(const std::string& key, int64_t resume_offset);
  // Keeps what is durable of it, and makes what it has durable. How much that is: none of one that
  // was published for a job that did not come to be.
  int64_t Return(const std::string& key, std::unique_ptr<Upload> upload);
  // The upload became a job, or is of no use: removes what is left of it.
  void Forget(const std::string& key, std::unique_ptr<Upload> upload);
  // Tells how much is durable while the upload goes on.
  void Advance(const std::string& key, int64_t durable_bytes);

  std::optional<UploadPosition> Find(const std::string& key);
  void RemoveExpired();

 private:
  struct Kept {
    int64_t durable_bytes = 0;
    int64_t used_us = 0;  // wall clock: it outlives the daemon
    bool taken = false;
  };

  void FindEarlier();
  void RemoveLocked(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoomLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const KeptUploadsOptions options_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Kept> uploads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
