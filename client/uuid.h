// UUIDs (RFC 4122): random ones, and the name-based ones that make a resubmission recognisable.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// The version 5 UUID of `name` in the namespace whose 16 bytes are `namespace_bytes`.
std::string UuidV5(absl::string_view namespace_bytes, absl::string_view name);

// A version 4 UUID from the system's random numbers.
std::string RandomUuid();

// The request_id of a submission: the same input, spec and run key give the same UUID, so that a
// repeated command attaches to the job that it made before.
// content: sha256 of the input, or what else tells what is asked for. spec: a JobSpec, serialised
// deterministically.
std::string RequestIdOf(absl::string_view content, absl::string_view spec,
                        absl::string_view run_key);

}  // namespace nightshift
