// absl::Status as gRPC sends it.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// Code, message and a google.rpc.Status below 4 KiB as details. INTERNAL and UNKNOWN are logged
// with an incident id, and the caller is told the id only.
grpc::Status ToGrpcStatus(const absl::Status& status);

// For UNAVAILABLE: tells clients that retry by themselves when to come back
// (grpc-retry-pushback-ms).
void AddRetryMetadata(const absl::Status& status, grpc::CallbackServerContext& context);

// UNIMPLEMENTED naming the feature.
absl::Status NotInThisVersion(absl::string_view feature);

// UNAVAILABLE: the daemon is draining.
absl::Status Draining();

}  // namespace nightshift
