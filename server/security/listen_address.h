// Which addresses the daemon may listen on.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace nightshift {

inline constexpr char kUnixPrefix[] = "unix:";

// OK for an address that plain text is safe on: "unix:PATH", or HOST:PORT of the loopback
// interface. INVALID_ARGUMENT explains why it is not.
absl::Status CheckAddress(const std::string& address);

}  // namespace nightshift
