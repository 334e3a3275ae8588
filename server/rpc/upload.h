// Upload: an input that is being received, in its own file under uploads/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/digest.h"

namespace nightshift {

// One thread at a time.
class Upload {
 public:
  // A file that is removed with this object, unless Publish moved it.
  static absl::StatusOr<std::unique_ptr<Upload>> Create(const std::string& uploads_directory);
  // A file that stays until Discard or Publish, also over a crash. Its name tells how many of its
  // bytes are durable: uploads/NAME.BYTES.part (kKeptUploadSuffix).
  static absl::StatusOr<std::unique_ptr<Upload>> CreateKept(const std::string& uploads_directory,
                                                            const std::string& name);
  // Goes on with a kept one after its durable bytes, which are read once for the digest.
  static absl::StatusOr<std::unique_ptr<Upload>> Reopen(const std::string& uploads_directory,
                                                        const std::string& name,
                                                        int64_t durable_bytes);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Adds a chunk. Errors: INVALID_ARGUMENT (CHECKSUM_MISMATCH), FAILED_PRECONDITION
  // (UPLOAD_OFFSET_MISMATCH, metadata committedSize) when `offset` is not committed_bytes(),
  // RESOURCE_EXHAUSTED (disk full).
  absl::Status Append(int64_t offset, absl::string_view data, uint32_t crc32c);
  absl::Status Append(absl::string_view data);
  // Makes what was appended to a kept upload durable, and its name say so.
  absl::Status Sync();
  // Ends the input and checks what the sender counted. Errors: INVALID_ARGUMENT
  // (CHECKSUM_MISMATCH).
  absl::Status Finish(int64_t total_bytes, absl::string_view sha256);
  // Ends the input.
  void Finish();
  // Makes the input durable as `name` in `directory`: synced, renamed, folder synced.
  absl::Status Publish(const std::string& directory, const std::string& name);
  // Removes the file, unless Publish moved it.
  void Discard();

  int fd() const { return fd_; }
  // By Publish.
  bool has_moved() const { return has_moved_; }
  int64_t committed_bytes() const { return committed_bytes_; }
  int64_t durable_bytes() const { return durable_bytes_; }
  // 32 bytes, after Finish.
  const std::string& sha256() const { return sha256_; }

 private:
  Upload(std::string directory, std::string kept_name, std::string path, int fd)
      : directory_(std::move(directory)),
        kept_name_(std::move(kept_name)),
        path_(std::move(path)),
        fd_(fd) {}

  const std::string directory_;
  const std::string kept_name_;  // empty: not kept
  std::string path_;             // empty after Publish and Discard
  const int fd_;
  bool has_moved_ = false;
  int64_t committed_bytes_ = 0;
  int64_t durable_bytes_ = 0;
  Sha256 digest_;
  std::string sha256_;
};

// The file of a kept upload.
std::string KeptUploadPath(const std::string& uploads_directory, const std::string& name,
                           int64_t durable_bytes);

// A refusal of a chunk or a resumption at another offset than what there is.
absl::Status OffsetMismatch(absl::string_view what, int64_t offset, int64_t committed_bytes);

}  // namespace nightshift
