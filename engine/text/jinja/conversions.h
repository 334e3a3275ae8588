// JinjaValues to text (as Python's str and repr, and as JSON), and JSON to JinjaValues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

// str(value): text as it is, undefined as nothing; lists and mappings as Python's repr.
absl::StatusOr<OriginText> ToText(const JinjaValue& value, JinjaBudget& budget);

// json.dumps(value, ensure_ascii=False, indent=indent).
absl::StatusOr<OriginText> ToJson(const JinjaValue& value, std::optional<int64_t> indent,
                                  JinjaBudget& budget);

// Caller's data: all text in it is untrusted. `path` names it in messages.
// Errors: INVALID_ARGUMENT for text that is not UTF-8, with place and offset; RESOURCE_EXHAUSTED
// for nesting beyond kMaxValueDepth.
absl::StatusOr<JinjaValue> FromJson(const nlohmann::json& json, const std::string& path);

}  // namespace nightshift
