// Authorization: who may call what. The one place that decides it: each call passes through
// Authorize before its handler begins (StartCall, call.h), so before anybody looks whether what it
// asks for exists.
#pragma once

#include <cstdint>
#include <optional>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/access_control.h"
#include "server/security/caller.h"

namespace nightshift {

// The least role that may call the method, as "nightshift.v1.JobService/GetJob"; nothing for a
// method that the table does not have, which nobody may call.
std::optional<Role> LeastRole(absl::string_view method);

// Who calls, by the token of this call ("authorization: Bearer TOKEN"), else by the certificate of
// its connection. Never by what an earlier call of the connection brought.
// Errors: UNAUTHENTICATED (TOKEN_REQUIRED, TOKEN_UNKNOWN, TOKEN_EXPIRED, CERTIFICATE_UNKNOWN,
// CERTIFICATE_EXPIRED), PERMISSION_DENIED (ROLE_TOO_LOW).
absl::StatusOr<Caller> Authorize(const AccessControl& access,
                                 const grpc::CallbackServerContext& context,
                                 absl::string_view method, int64_t now_us);

}  // namespace nightshift
