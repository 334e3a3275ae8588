// nightshiftd make-token: a new secret for a caller, and what the daemon is to know of it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "server/security/caller.h"

namespace nightshift {

struct MakeTokenOptions {
  std::string tenant = kDefaultTenant;
  std::string role;
  int64_t days = 365;  // until it expires; 0: never
};

struct NewToken {
  std::string token;        // for the caller; nowhere kept
  std::string access_line;  // for the access file: its digest, tenant, role and expiry
};

// One line of JSON with both.
std::string TokenJson(const NewToken& made);

// INVALID_ARGUMENT naming the option. `now_us` since 1970.
absl::StatusOr<NewToken> CreateToken(const MakeTokenOptions& options, int64_t now_us);

}  // namespace nightshift
