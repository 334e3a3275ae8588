// chat_template_kwargs: a caller's own variables for the chat template.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// Of the JSON text. Names are looked up one by one when it is read, so this bounds that time too.
inline constexpr int64_t kMaxTemplateArgumentBytes = 64 << 10;

// Reads a JSON object, names in their order (of equal ones the last value counts), and checks it.
// Errors: INVALID_ARGUMENT for what is no JSON object, not UTF-8, or above the limit.
absl::StatusOr<nlohmann::ordered_json> ParseTemplateArguments(absl::string_view text);

// Errors: INVALID_ARGUMENT unless it is an object (or null) without the names that the server gives
// itself (messages, add_generation_prompt, bos_token, eos_token, strftime_now, raise_exception),
// nested no deeper than values of templates may be.
absl::Status CheckTemplateArguments(const nlohmann::ordered_json& arguments);

}  // namespace nightshift
