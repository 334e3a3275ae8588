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

// One thread at a time. The file is removed with this object, unless Publish moved it.
class Upload {
 public:
  static absl::StatusOr<std::unique_ptr<Upload>> Create(const std::string& uploads_directory);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Adds a chunk. Errors: INVALID_ARGUMENT (CHECKSUM_MISMATCH), FAILED_PRECONDITION
  // (UPLOAD_OFFSET_MISMATCH, metadata committedSize) when `offset` is not committed_bytes(),
  // RESOURCE_EXHAUSTED (disk full).
  absl::Status Append(int64_t offset, absl::string_view data, uint32_t crc32c);
  absl::Status Append(absl::string_view data);
  // Ends the input and checks what the sender counted. Errors: INVALID_ARGUMENT
  // (CHECKSUM_MISMATCH).
  absl::Status Finish(int64_t total_bytes, absl::string_view sha256);
  // Ends the input.
  void Finish();
  // Makes the input durable as `name` in `directory`: synced, renamed, folder synced.
  absl::Status Publish(const std::string& directory, const std::string& name);

  int fd() const { return fd_; }
  int64_t committed_bytes() const { return committed_bytes_; }
  // 32 bytes, after Finish.
  const std::string& sha256() const { return sha256_; }

 private:
  Upload(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;  // empty after Publish
  const int fd_;
  int64_t committed_bytes_ = 0;
  Sha256 digest_;
  std::string sha256_;
};

}  // namespace nightshift
