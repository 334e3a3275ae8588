// Errors of the server as absl::Status, and the google.rpc details that they carry.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "google/rpc/status.pb.h"

namespace nightshift {

struct FieldError {
  std::string field;  // path: "spec.sampling.top_p"
  std::string description;
};

// What the details of an error say; each part is empty when the error has none.
struct ErrorDetails {
  std::string reason;                           // ErrorInfo, UPPER_SNAKE
  std::map<std::string, std::string> metadata;  // ErrorInfo
  std::vector<FieldError> fields;               // BadRequest
  absl::Duration retry_delay;                   // RetryInfo
};

// The status of an RPC; its message becomes "attempted: message" and its details stay attached.
// CANCELLED becomes UNAVAILABLE: not for calls that the caller cancelled.
absl::Status FromRpcStatus(absl::string_view attempted, const grpc::Status& status);

// Details of a status that FromRpcStatus made; empty for other statuses.
ErrorDetails DetailsOf(const absl::Status& status);
ErrorDetails DetailsOf(const google::rpc::Status& status);

// An error of our own with a reason, as a server would give it.
absl::Status MakeClientError(absl::StatusCode code, absl::string_view reason,
                             absl::string_view message);

// True for errors after which the same call may succeed: UNAVAILABLE (but for a daemon that is
// drained: a person must undo that), a request_id that is still in flight, an upload or a stream that
// was cut.
bool IsTransient(const absl::Status& status);

}  // namespace nightshift
