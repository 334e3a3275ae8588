#include "server/rpc/listener_probe.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"
#include "server/security/listen_address.h"

namespace nightshift {
namespace {

struct Target {
  sockaddr_storage address = {};
  socklen_t length = 0;
};

absl::Status Unavailable(const std::string& address, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("probe of ", address, ": ", what));
}

absl::StatusOr<Target> Resolve(const std::string& address) {
  Target target;
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, kUnixPrefix)) {
    sockaddr_un unix_address = {};
    unix_address.sun_family = AF_UNIX;
    std::memcpy(unix_address.sun_path, path.data(),
                std::min(path.size(), sizeof(unix_address.sun_path) - 1));
    std::memcpy(&target.address, &unix_address, sizeof(unix_address));
    target.length = sizeof(unix_address);
    return target;
  }
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) {
    return Unavailable(address, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  std::memcpy(&target.address, found->ai_addr, found->ai_addrlen);
  target.length = found->ai_addrlen;
  return target;
}

bool WaitFor(int socket, int16_t events, int64_t timeout_us) {
  pollfd waited = {.fd = socket, .events = events, .revents = 0};
  return ::poll(&waited, 1, static_cast<int>(timeout_us / 1000)) == 1;
}

}  // namespace

absl::Status ProbeListener(const std::string& address, int64_t timeout_us) {
  ASSIGN_OR_RETURN(const Target target, Resolve(address));
  const FileDescriptor socket(
      ::socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) {
    return Unavailable(address, strerror(errno));
  }
  const auto* const generic =
      static_cast<const sockaddr*>(static_cast<const void*>(&target.address));
  if (::connect(socket.get(), generic, target.length) != 0 && errno != EINPROGRESS) {
    return Unavailable(address, strerror(errno));
  }
  if (!WaitFor(socket.get(), POLLOUT, timeout_us)) {
    return Unavailable(address, "no connection in time");
  }
  // No greeting of any protocol that is served: a server that waits for one hangs up.
  constexpr absl::string_view kNonsense = "nightshift probe\r\n\r\n";
  if (::send(socket.get(), kNonsense.data(), kNonsense.size(), MSG_NOSIGNAL) < 0) {
    return errno == EPIPE || errno == ECONNRESET ? absl::OkStatus()
                                                 : Unavailable(address, strerror(errno));
  }
  return WaitFor(socket.get(), POLLIN, timeout_us)
             ? absl::OkStatus()
             : Unavailable(address, "connected, and nobody answered in time");
}

}  // namespace nightshift
