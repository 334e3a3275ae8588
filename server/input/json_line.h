// Parsing one line of JSON that a stranger wrote.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/input/parse_limits.h"

namespace nightshift {

// Parses exactly one JSON object. Of a name that occurs twice the last value counts.
// Errors: INVALID_ARGUMENT (reason INPUT_MALFORMED, code invalid_json_line) with the byte offset in
// the line, never its content: invalid UTF-8, lone surrogate escapes, nesting or number of values
// above the limits, numbers that no double holds, anything else that is not one JSON object.
absl::StatusOr<nlohmann::json> ParseJsonLine(absl::string_view line, const ParseLimits& limits);

}  // namespace nightshift
