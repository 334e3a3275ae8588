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

// What an address that other machines reach lacks; empty: nothing.
std::string Missing(const ListenProtection& protection) {
  if (!protection.tls) {
    return "no TLS: give --tls-cert and --tls-key, or reach the daemon through an ssh tunnel";
  }
  if (!protection.access_file) {
    return "no --access-file that says who may do what";
  }
  if (!protection.client_ca && !protection.allow_token_only) {
    return "no --tls-client-ca, so that strangers may speak to it; give one, or accept that with "
           "--allow-token-only yes";
  }
  return "";
}

}  // namespace

absl::Status CheckAddress(const std::string& address, const ListenProtection& protection) {
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
  const std::string missing = IsLoopback(address.substr(0, colon)) ? "" : Missing(protection);
  if (!missing.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "listen on ", address, ": other machines can reach it, and there is ", missing));
  }
  return absl::OkStatus();
}

}  // namespace nightshift
