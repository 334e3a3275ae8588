// Waiting for gRPC operations in slices, so that a waiting command can still be interrupted.
#pragma once

#include <functional>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include "absl/time/time.h"

namespace nightshift {

enum class Awaited {
  kDone,     // the operation succeeded
  kBroken,   // the call is over: Finish tells why
  kSilent,   // nothing came before the deadline; the call was cancelled
  kStopped,  // keep_waiting said no; the call was cancelled
};

// Waits for the one outstanding operation of the call, calling keep_waiting about every 100 ms.
// In every case the operation has ended when this returns.
Awaited Await(grpc::CompletionQueue& queue, grpc::ClientContext& context, absl::Time deadline,
              const std::function<bool()>& keep_waiting);

// Sleeps in slices; false as soon as keep_waiting says no.
bool Pause(absl::Duration duration, const std::function<bool()>& keep_waiting);

}  // namespace nightshift
