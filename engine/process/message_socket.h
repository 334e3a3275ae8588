// MessageSocket: whole messages over a stream socket between two processes of one executable.
//
// On the wire: "nsengin1" (the last byte is the version of this form), the length as 8 bytes, the
// message.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {

// A block of 1,000 requests of 100,000 tokens with an id each is 400 MB.
inline constexpr uint64_t kMaxMessageBytes = uint64_t{4} << 30;

// One thread.
class MessageSocket {
 public:
  explicit MessageSocket(FileDescriptor fd) : fd_(std::move(fd)) {}
  // Two ends that are connected, close-on-exec. Errors: as ErrnoStatus.
  static absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> Pair();

  // Both wait. Errors: UNAVAILABLE (the other end is closed), as ErrnoStatus, and
  // RESOURCE_EXHAUSTED above kMaxMessageBytes; Receive also DATA_LOSS (what comes is no message, or
  // ends within one).
  absl::Status Send(absl::string_view message);
  absl::StatusOr<std::string> Receive();
  // Whether the other end is closed and nothing that it sent is left to be received. Does not wait.
  bool IsClosed() const;
  void Close() { fd_.Close(); }

 private:
  absl::Status SendAll(absl::string_view bytes);
  // As many bytes as come before the end, at most `size`.
  absl::StatusOr<size_t> ReceiveUpTo(char* target, size_t size);

  FileDescriptor fd_;
};

}  // namespace nightshift
