// JinjaValues to text (as Python's str and repr, and as JSON), and JSON to JinjaValues.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

// str(value): text as it is, undefined as nothing; all else as Python's repr.
absl::StatusOr<OriginText> ToText(const JinjaValue& value, JinjaBudget& budget);
// repr(value): text in quotes.
absl::StatusOr<OriginText> ToRepr(const JinjaValue& value, JinjaBudget& budget);

// The options of json.dumps; these are what it writes without any, and with ensure_ascii=False.
struct JsonStyle {
  bool ascii = false;                 // escape all else
  std::optional<std::string> indent;  // for each level, on a line of its own
  std::string item_separator = ", ";  // "," is Python's choice where there is an indent
  std::string key_separator = ": ";
  bool sort_keys = false;
};
inline constexpr int64_t kMaxJsonIndent = 64;
absl::StatusOr<OriginText> ToJson(const JinjaValue& value, const JsonStyle& style,
                                  JinjaBudget& budget);

// Caller's data in the caller's order: all text in it is untrusted. `path` names it in messages.
// Errors: INVALID_ARGUMENT for text that is not UTF-8, with place and offset; RESOURCE_EXHAUSTED
// for nesting beyond kMaxValueDepth.
absl::StatusOr<JinjaValue> FromJson(const nlohmann::ordered_json& json, const std::string& path);

}  // namespace nightshift
