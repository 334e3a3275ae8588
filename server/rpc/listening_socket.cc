#include "server/rpc/listening_socket.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "kernels/base/status_macros.h"
#include "server/security/listen_address.h"

namespace nightshift {
namespace {

constexpr int kBacklog = 1024;

absl::Status Refusal(const std::string& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("listen on ", address, ": ", why, "; choose another --listen"));
}

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);  // CheckAddress: it fits
  return address;
}

template <typename Address>
const sockaddr* Generic(const Address& address) {
  return static_cast<const sockaddr*>(static_cast<const void*>(&address));
}

// A socket path that somebody answers on is not ours to take.
bool SomebodyListens(const sockaddr_un& address) {
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return probe.get() >= 0 && ::connect(probe.get(), Generic(address), sizeof(address)) == 0;
}

// A socket is its owner's; in a folder that lets a group in and nobody else it is that group's, too.
mode_t SocketMode(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  struct stat information {};
  const bool is_for_group = ::stat(folder.c_str(), &information) == 0 &&
                            (information.st_mode & S_IXGRP) != 0 &&
                            (information.st_mode & S_IRWXO) == 0;
  return S_IRUSR | S_IWUSR | (is_for_group ? S_IRGRP | S_IWGRP : 0U);
}

absl::StatusOr<ListeningSocket> ListenOnUnix(const std::string& address, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !std::filesystem::exists(folder, error)) {
    std::filesystem::create_directories(folder, error);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return Refusal(address, absl::StrCat("make folder ", folder.string(), ": ", error.message()));
  }
  const sockaddr_un place = UnixAddress(path);
  if (SomebodyListens(place)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process listens on ", path, "; stop it or choose another --listen"));
  }
  struct stat found = {};
  if (::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
    ::unlink(path.c_str());
  }
  ListeningSocket made = {.descriptor = FileDescriptor(
                              ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
                          .address = address,
                          .is_unix = true};
  // The folder may be open to others, the socket is not: nobody connects before listen.
  if (made.descriptor.get() < 0 ||
      ::bind(made.descriptor.get(), Generic(place), sizeof(place)) != 0 ||
      ::chmod(path.c_str(), SocketMode(path)) != 0 ||
      ::listen(made.descriptor.get(), kBacklog) != 0) {
    return Refusal(address, std::strerror(errno));
  }
  return made;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& address, std::string host,
                                  const std::string& port) {
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  Addresses found(list);
  if (code != 0) {
    return Refusal(address, absl::StrCat("resolve ", host, ": ", ::gai_strerror(code)));
  }
  return found;
}

int BoundPort(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  ::getsockname(fd, static_cast<sockaddr*>(static_cast<void*>(&bound)), &size);
  // The port lies at the same place in both families.
  return ntohs(static_cast<const sockaddr_in*>(static_cast<const void*>(&bound))->sin_port);
}

// -1 with errno set.
FileDescriptor BindTo(const addrinfo& place) {
  FileDescriptor made(
      ::socket(place.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, place.ai_protocol));
  const int on = 1;
  const bool bound = made.get() >= 0 &&
                     ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
                     ::bind(made.get(), place.ai_addr, place.ai_addrlen) == 0 &&
                     ::listen(made.get(), kBacklog) == 0;
  return bound ? std::move(made) : FileDescriptor();
}

}  // namespace

absl::StatusOr<std::vector<ListeningSocket>> ListenOn(const std::string& address) {
  std::vector<ListeningSocket> sockets;
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, kUnixPrefix)) {
    ASSIGN_OR_RETURN(ListeningSocket made, ListenOnUnix(address, std::string(path)));
    sockets.push_back(std::move(made));
    return sockets;
  }
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  std::string port = address.substr(colon + 1);
  ASSIGN_OR_RETURN(const Addresses places, Resolve(address, host, port));
  for (const addrinfo* place = places.get(); place != nullptr; place = place->ai_next) {
    addrinfo wanted = *place;
    sockaddr_storage storage = {};
    std::memcpy(&storage, place->ai_addr, place->ai_addrlen);
    if (!sockets.empty()) {
      // The port that the first one was given.
      static_cast<sockaddr_in*>(static_cast<void*>(&storage))->sin_port =
          htons(static_cast<uint16_t>(BoundPort(sockets.front().descriptor.get())));
    }
    wanted.ai_addr = static_cast<sockaddr*>(static_cast<void*>(&storage));
    FileDescriptor made = BindTo(wanted);
    if (made.get() >= 0) {
      port = absl::StrCat(BoundPort(made.get()));
      sockets.push_back({.descriptor = std::move(made),
                         .address = absl::StrCat(host, ":", port),
                         .is_unix = false});
    }
  }
  if (sockets.empty()) {
    return Refusal(address, std::strerror(errno));
  }
  return sockets;
}

}  // namespace nightshift
