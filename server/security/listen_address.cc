#include "server/security/listen_address.h"

#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace nightshift {
namespace {

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

}  // namespace

absl::Status CheckAddress(const std::string& address) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, kUnixPrefix)) {
    constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;
    if (path.empty() || path.size() > kMaxPathBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "listen on ", address, ": a socket path has 1 to ", kMaxPathBytes, " bytes, this one ",
          path.size(), "; choose a shorter --state-dir or give --listen"));
    }
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen on ", address, ": must be unix:PATH or HOST:PORT"));
  }
  if (!IsLoopback(address.substr(0, colon))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "listen on ", address,
        ": only unix:PATH and loopback addresses (127.0.0.1:PORT, "
        "[::1]:PORT) are served, because this version has no TLS; reach the daemon from elsewhere "
        "through an ssh tunnel"));
  }
  return absl::OkStatus();
}

}  // namespace nightshift
