// The gRPC channel of a client: keepalive, retry policy, sizes, and waiting until it is connected.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "client/credentials.h"

namespace nightshift {

// A lazy channel. Each of its calls shows the token, if there is one.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials = {});

// OK once connected. At the first refused connection or after `timeout` UNAVAILABLE (reason
// NOT_LISTENING), or UNAUTHENTICATED (reason TLS_REFUSED) when somebody listens and one side did
// not accept the other's certificate; CANCELLED when keep_waiting says no.
absl::Status WaitUntilConnected(grpc::Channel& channel, const std::string& address, bool uses_tls,
                                absl::Duration timeout, const std::function<bool()>& keep_waiting);

}  // namespace nightshift
