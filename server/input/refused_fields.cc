#include "server/input/refused_fields.h"

#include <algorithm>
#include <array>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"

#include "server/input/row_error.h"

namespace nightshift {
namespace {

using nlohmann::json;

bool IsNumber(const json& value, double wanted) {
  return value.is_number() && value.get<double>() == wanted;
}
bool IsZero(const json& value) {
  return IsNumber(value, 0.0);
}
bool IsOne(const json& value) {
  return IsNumber(value, 1.0);
}
bool IsFalse(const json& value) {
  return value.is_boolean() && !value.get<bool>();
}
bool IsTrue(const json& value) {
  return value.is_boolean() && value.get<bool>();
}
bool IsEmpty(const json& value) {
  return (value.is_array() || value.is_object()) && value.empty();
}
bool IsEmptyText(const json& value) {
  return value == "";
}
bool IsNone(const json& value) {
  return value == "none";
}
bool IsBool(const json& value) {
  return value.is_boolean();
}
bool IsTextFormat(const json& value) {
  return value.is_object() && value.size() == 1 && value.contains("type") &&
         value["type"] == "text";
}
bool IsTextModality(const json& value) {
  return value.is_array() && value.size() == 1 && value[0] == "text";
}
bool Never(const json& /*value*/) {
  return false;
}

struct RefusedField {
  absl::string_view name;
  // True for the values that ask for nothing.
  bool (*asks_nothing)(const json& value);
};

// Of OpenAI's chat completions and completions, and of the extensions of vLLM, SGLang and
// llama.cpp's server.
constexpr std::array kRefused = {
    RefusedField{"add_special_tokens", Never},
    RefusedField{"allowed_token_ids", IsEmpty},
    RefusedField{"audio", Never},
    RefusedField{"best_of", IsOne},
    RefusedField{"chat_template", Never},
    RefusedField{"continue_final_message", IsFalse},
    RefusedField{"documents", IsEmpty},
    RefusedField{"dry_multiplier", IsZero},
    RefusedField{"ebnf", Never},
    RefusedField{"function_call", IsNone},
    RefusedField{"functions", IsEmpty},
    RefusedField{"grammar", Never},
    RefusedField{"guided_choice", Never},
    RefusedField{"guided_grammar", Never},
    RefusedField{"guided_json", Never},
    RefusedField{"guided_regex", Never},
    RefusedField{"include_stop_str_in_output", IsFalse},
    RefusedField{"json_schema", Never},
    RefusedField{"length_penalty", IsOne},
    RefusedField{"logits_processors", IsEmpty},
    RefusedField{"mirostat", IsZero},
    RefusedField{"mm_processor_kwargs", IsEmpty},
    RefusedField{"modalities", IsTextModality},
    RefusedField{"n_predict", Never},
    RefusedField{"parallel_tool_calls", IsBool},
    RefusedField{"prompt_embeds", Never},
    RefusedField{"reasoning_effort", Never},
    RefusedField{"regex", Never},
    RefusedField{"repeat_penalty", IsOne},
    RefusedField{"response_format", IsTextFormat},
    RefusedField{"return_tokens_as_token_ids", IsFalse},
    RefusedField{"skip_special_tokens", IsTrue},
    RefusedField{"stream", IsFalse},
    RefusedField{"structural_tag", Never},
    RefusedField{"structured_outputs", Never},
    RefusedField{"suffix", IsEmptyText},
    RefusedField{"tfs_z", IsOne},
    RefusedField{"tool_choice", IsNone},
    RefusedField{"tools", IsEmpty},
    RefusedField{"truncate_prompt_tokens", Never},
    RefusedField{"typical_p", IsOne},
    RefusedField{"use_beam_search", IsFalse},
    RefusedField{"verbosity", Never},
    RefusedField{"web_search_options", Never},
    RefusedField{"xtc_probability", IsZero},
};

// Read elsewhere, or known to change nothing of a row's text.
constexpr std::array<absl::string_view, 33> kKnown = {
    "add_generation_prompt",
    "bad_words",
    "chat_template_kwargs",
    "echo",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "parse_special_in_content",
    "prediction",
    "presence_penalty",
    "priority",
    "prompt_cache_key",
    "prompt_logprobs",
    "repetition_penalty",
    "request_id",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "stop_token_ids",
    "store",
    "stream_options",
    "temperature",
    "top_k",
    "top_p",
};

bool IsKnown(absl::string_view name, RowKind kind) {
  if (name == "top_logprobs") {
    return kind != RowKind::kCompletion;
  }
  if (name == "prompt") {
    return kind != RowKind::kChat;
  }
  if (name == "messages") {
    return kind != RowKind::kCompletion;
  }
  if (kind == RowKind::kPlain && (name == "id" || name == "custom_id" || name == "choices" || name == "error")) {
    return true;
  }
  return name == "user" || std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
}

}  // namespace

absl::Status CheckOtherFields(const json& body, RowKind kind, int64_t& ignored) {
  for (const auto& item : body.items()) {
    const std::string& name = item.key();
    const json& value = item.value();
    if (IsKnown(name, kind) || value.is_null()) {
      continue;
    }
    if (name == "prompt" || name == "messages" || name == "top_logprobs") {
      return RowError(reason::kFieldInvalid, row_code::kUnsupported, name,
                      kind == RowKind::kChat ? "belongs to /v1/completions"
                                             : "belongs to /v1/chat/completions");
    }
    if (name == "choices") {
      return RowError(reason::kFieldInvalid, row_code::kUnsupported, name,
                      "belongs to the plain form");
    }
    const auto* refused =
        std::find_if(kRefused.begin(), kRefused.end(),
                     [&](const RefusedField& field) { return field.name == name; });
    if (refused == kRefused.end()) {
      ++ignored;
    } else if (!refused->asks_nothing(value)) {
      return RowError(reason::kFieldInvalid, row_code::kUnsupported, name,
                      "this value is not supported in this version; remove the field");
    }
  }
  return absl::OkStatus();
}

}  // namespace nightshift
