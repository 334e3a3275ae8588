// absl::Status as gRPC sends it.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"

namespace nightshift {

// Code, message and a google.rpc.Status below 4 KiB as details. INTERNAL and UNKNOWN are logged
// with an incident id, and the caller is told the id only. What may pass (UNAVAILABLE,
// RESOURCE_EXHAUSTED) says when to come back.
grpc::Status ToGrpcStatus(const absl::Status& status);

// For UNAVAILABLE: tells clients that retry by themselves when to come back, or that no retry of
// theirs helps (grpc-retry-pushback-ms).
void AddRetryMetadata(const absl::Status& status, grpc::CallbackServerContext& context);

// UNAVAILABLE: the daemon ends.
absl::Status Draining();
// UNAVAILABLE: an administrator wants nothing to run (SetDrain).
absl::Status Drained();

}  // namespace nightshift
