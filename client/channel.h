// The gRPC channel of a client: keepalive, retry policy, sizes, and waiting until it is connected.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace nightshift {

// A lazy channel in plain text to a local daemon.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// OK once connected. UNAVAILABLE (reason NOT_LISTENING) at the first refused connection or after
// `timeout`; CANCELLED when keep_waiting says no.
absl::Status WaitUntilConnected(grpc::Channel& channel, const std::string& address,
                                absl::Duration timeout, const std::function<bool()>& keep_waiting);

}  // namespace nightshift
