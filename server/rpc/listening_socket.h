// ListeningSocket: a bound socket that connections are accepted from.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {

struct ListeningSocket {
  FileDescriptor descriptor;
  std::string address;  // as asked for, with the port that was bound
  bool is_unix = false;
};

// Binds "unix:PATH", or HOST:PORT with every address that the host has (port 0: one that is free,
// the same for all). A socket path that nobody listens on is taken over and is its owner's alone.
// Errors: FAILED_PRECONDITION (in use, no permission, unknown host), naming the address.
absl::StatusOr<std::vector<ListeningSocket>> ListenOn(const std::string& address);

}  // namespace nightshift
