// The prompt of a JSON row: text, token ids or messages, and the options of the chat template.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/input/parse_limits.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// A string, a list of token ids, or a list that holds exactly one of these.
absl::Status ReadPrompt(const nlohmann::json& prompt, v1::InferenceRequest& request);

// A list of {role, content, name?}. Content is a string, or a list of {"type": "text", "text"}
// parts, which are joined by newlines. The role developer becomes system.
absl::Status ReadMessages(const nlohmann::json& messages, v1::Chat& chat, int64_t& ignored);

// A list whose members are strings or lists of token ids.
absl::Status ReadChoices(const nlohmann::json& choices, const ParseLimits& limits,
                         v1::InferenceRequest& request);

// add_generation_prompt, parse_special_in_content and chat_template_kwargs. `line` is the row's
// text, in which the body is the line itself or, if `is_nested`, its member "body".
absl::Status ReadPromptOptions(const nlohmann::json& body, absl::string_view line, bool is_nested,
                               v1::PromptOptions& options);

}  // namespace nightshift
