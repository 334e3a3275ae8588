// Which addresses the daemon may listen on.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace nightshift {

inline constexpr char kUnixPrefix[] = "unix:";

// What keeps strangers out of a daemon.
struct ListenProtection {
  bool tls = false;               // of all that is not a Unix socket
  bool client_ca = false;         // clients have certificates
  bool access_file = false;       // callers are known
  bool allow_token_only = false;  // clients need no certificate
};

// OK for an address that is safe so protected: "unix:PATH" and HOST:PORT of the loopback interface
// always; HOST:PORT of another with TLS, an access file, and certificates of clients unless tokens
// alone are allowed (gRPC 1.51 has faults that who may speak HTTP/2 to it can use before it shows a
// token). INVALID_ARGUMENT explains why it is not.
absl::Status CheckAddress(const std::string& address, const ListenProtection& protection);

}  // namespace nightshift
