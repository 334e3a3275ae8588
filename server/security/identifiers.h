// Names that we give: UUIDs, job ids.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// A UUID of version 7 (RFC 9562): sorts by time, 74 random bits. `wall_us` since 1970.
std::string MakeUuid(int64_t wall_us);

// "job-" and 12 characters of [a-z2-7]: 60 random bits.
std::string MakeJobId();

// True for 8-4-4-4-12 hexadecimal digits.
bool IsUuid(absl::string_view text);

// True for [a-z0-9-]{1,63}.
bool IsJobId(absl::string_view text);
bool IsTenant(absl::string_view text);

}  // namespace nightshift
