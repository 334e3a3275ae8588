// Fields that other servers know and that would change a row's meaning here: never dropped
// silently.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

#include "server/input/sampling_fields.h"

namespace nightshift {

// Looks at every field of `body`. Fields that ask for what this version cannot do (tools, images,
// best_of, streaming, ...) are an error unless their value is the one that asks for nothing.
// Fields that nobody reads are counted in `ignored`.
// Errors: INVALID_ARGUMENT (code unsupported_parameter) naming the field.
absl::Status CheckOtherFields(const nlohmann::json& body, RowKind kind, int64_t& ignored);

}  // namespace nightshift
