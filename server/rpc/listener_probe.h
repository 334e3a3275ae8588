// ProbeListener: whether somebody behind an address takes new connections.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace nightshift {

// Connects as a stranger would and waits for a sign of life: gRPC greets, and a TLS server ends
// what makes no sense. A kernel alone connects and says nothing: so it is when a server has stopped
// to accept, as gRPC 1.51 does for good when it ran out of descriptors once. `address`: "unix:PATH"
// or HOST:PORT. Errors: UNAVAILABLE, naming the address.
absl::Status ProbeListener(const std::string& address, int64_t timeout_us);

}  // namespace nightshift
