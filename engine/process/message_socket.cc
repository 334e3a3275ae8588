#include "engine/process/message_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr absl::string_view kMagic = "nsengin1";
constexpr size_t kHeaderBytes = 16;
// Memory is taken in steps as bytes come, not as they are promised.
constexpr size_t kFirstStepBytes = 64 << 10;

absl::Status SocketStatus(const char* attempted) {
  return errno == EPIPE || errno == ECONNRESET
             ? absl::UnavailableError(absl::StrCat(attempted, ": the other end is closed"))
             : ErrnoStatus(attempted, "over the engine's socket");
}

absl::Status CheckSize(uint64_t size) {
  return size <= kMaxMessageBytes
             ? absl::OkStatus()
             : absl::ResourceExhaustedError(absl::StrCat("a message of ", size,
                                                         " bytes: at most ", kMaxMessageBytes));
}

absl::Status EndsWithin(size_t received, uint64_t size) {
  return absl::DataLossError(
      absl::StrCat("receive: the other end closed after ", received, " of ", size, " bytes"));
}

}  // namespace

absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> MessageSocket::Pair() {
  std::array<int, 2> fds{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return ErrnoStatus("make", "a socket pair");
  }
  return std::pair(FileDescriptor(fds[0]), FileDescriptor(fds[1]));
}

absl::Status MessageSocket::SendAll(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent < 0) {
      return SocketStatus("send");
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status MessageSocket::Send(absl::string_view message) {
  const uint64_t size = message.size();
  RETURN_IF_ERROR(CheckSize(size));
  // The header goes with the beginning: most messages wake the other end once.
  const absl::string_view beginning = message.substr(0, kFirstStepBytes);
  std::array<char, sizeof(size)> length{};
  std::memcpy(length.data(), &size, sizeof(size));
  RETURN_IF_ERROR(
      SendAll(absl::StrCat(kMagic, absl::string_view(length.data(), length.size()), beginning)));
  return SendAll(message.substr(beginning.size()));
}

absl::StatusOr<size_t> MessageSocket::ReceiveUpTo(char* target, size_t size) {
  size_t received = 0;
  while (received < size) {
    const ssize_t count = recv(fd_.get(), target + received, size - received, 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return SocketStatus("receive");
    }
    if (count == 0) {
      break;
    }
    received += static_cast<size_t>(count);
  }
  return received;
}

absl::StatusOr<std::string> MessageSocket::Receive() {
  std::array<char, kHeaderBytes> header{};
  ASSIGN_OR_RETURN(const size_t header_bytes, ReceiveUpTo(header.data(), header.size()));
  if (header_bytes == 0) {
    return absl::UnavailableError("receive: the other end is closed");
  }
  if (header_bytes < header.size()) {
    return EndsWithin(header_bytes, header.size());
  }
  if (absl::string_view(header.data(), kMagic.size()) != kMagic) {
    return absl::DataLossError("receive: what comes does not begin like a message");
  }
  uint64_t size = 0;
  std::memcpy(&size, header.data() + kMagic.size(), sizeof(size));
  RETURN_IF_ERROR(CheckSize(size));
  std::string message;
  while (message.size() < size) {
    const size_t begin = message.size();
    const size_t step = std::min<size_t>(size - begin, std::max(kFirstStepBytes, begin));
    message.resize(begin + step);
    ASSIGN_OR_RETURN(const size_t count, ReceiveUpTo(message.data() + begin, step));
    if (count < step) {
      return EndsWithin(begin + count, size);
    }
  }
  return message;
}

bool MessageSocket::IsClosed() const {
  char next = 0;
  ssize_t count = 0;
  do {
    count = recv(fd_.get(), &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace nightshift
