// InputFile: the bytes of a submission, readable more than once, with their sha256.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {

// Incremental sha256 of a content that comes in pieces.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;
  void Update(absl::string_view bytes);
  // The 32 bytes; ends the sum.
  std::string Finish();

 private:
  void* context_;  // EVP_MD_CTX
};

// An immutable input. A pipe or standard input is first copied into an unnamed temporary file,
// because the request_id needs the sha256 before the upload and a retry needs the bytes again.
// Memory does not grow with the size.
class InputFile {
 public:
  // Opens a path, or standard input for "-".
  // Errors: INVALID_ARGUMENT for what cannot be opened or read or is empty, RESOURCE_EXHAUSTED when
  // the temporary copy does not fit.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  // What was written to an open file; `name` is for messages. Errors: as Open.
  static absl::StatusOr<InputFile> Of(FileDescriptor file, const std::string& name);

  // Up to max_bytes from `offset` on; empty at the end.
  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t max_bytes) const;

  int64_t size_bytes() const { return size_bytes_; }
  const std::string& sha256() const { return sha256_; }  // 32 bytes
  const std::string& name() const { return name_; }      // for messages
  // True when `path` is this very file.
  bool IsSameFileAs(const std::string& path) const;

 private:
  InputFile(FileDescriptor file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}
  absl::Status Measure();

  FileDescriptor file_;
  std::string name_;
  int64_t size_bytes_ = 0;
  std::string sha256_;
};

}  // namespace nightshift
