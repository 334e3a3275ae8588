// Parses the source of a chat template.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "engine/text/jinja/syntax.h"

namespace nightshift {

// `source` with normalised newlines. `max_depth` bounds nesting of statements and of expressions.
// Errors: INVALID_ARGUMENT with the line and what is wrong, or not supported.
absl::StatusOr<JinjaBlock> ParseJinja(const std::string& source, int64_t max_depth);

}  // namespace nightshift
