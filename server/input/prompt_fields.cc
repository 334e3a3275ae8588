#include "server/input/prompt_fields.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/json_fields.h"
#include "server/input/member_text.h"
#include "server/input/request_check.h"
#include "server/input/row_error.h"

namespace nightshift {
namespace {

using nlohmann::json;

absl::Status ReadTokens(const json& list, const std::string& param, v1::TokenIds& tokens) {
  tokens.mutable_ids()->Reserve(static_cast<int>(list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = absl::StrCat(param, "[", i, "]");
    ASSIGN_OR_RETURN(const int64_t id, AsInteger(list[i], at));
    if (id < 0 || id > INT32_MAX) {
      return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, at,
                      absl::StrCat("is ", id, ", must be 0 to 2147483647"));
    }
    tokens.add_ids(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadOnePrompt(const json& prompt, const std::string& param,
                           v1::InferenceRequest& request) {
  if (prompt.is_string()) {
    request.set_prompt(prompt.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  if (prompt.is_array()) {
    return ReadTokens(prompt, param, *request.mutable_tokens());
  }
  return WrongType(param, "a string or a list of token ids", prompt.type_name());
}

absl::Status ReadPart(const json& part, const std::string& at, bool first, std::string& text) {
  if (!part.is_object()) {
    return WrongType(at, "an object", part.type_name());
  }
  const json* type = FindField(part, "type");
  if (type == nullptr || *type != "text") {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, at + ".type",
                    "only text parts are supported in this version");
  }
  const json* content = FindField(part, "text");
  if (content == nullptr || !content->is_string()) {
    return WrongType(at + ".text", "a string",
                     content == nullptr ? "missing" : content->type_name());
  }
  if (!first) {
    text.push_back('\n');
  }
  text += content->get_ref<const std::string&>();
  return absl::OkStatus();
}

absl::Status ReadContent(const json& message, const std::string& at, std::string& text) {
  const std::string param = at + ".content";
  const json* content = FindField(message, "content");
  if (content == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kMissingField, param, "is missing");
  }
  if (content->is_string()) {
    text = content->get_ref<const std::string&>();
    return absl::OkStatus();
  }
  if (!content->is_array()) {
    return WrongType(param, "a string or a list of parts", content->type_name());
  }
  if (content->empty()) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, param, "has no parts");
  }
  for (size_t i = 0; i < content->size(); ++i) {
    RETURN_IF_ERROR(ReadPart((*content)[i], absl::StrCat(param, "[", i, "]"), i == 0, text));
  }
  return absl::OkStatus();
}

absl::Status ReadRole(const json& message, const std::string& at, std::string& role) {
  const json* field = FindField(message, "role");
  if (field == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kMissingField, at + ".role", "is missing");
  }
  if (!field->is_string()) {
    return WrongType(at + ".role", "a string", field->type_name());
  }
  role = field->get_ref<const std::string&>();
  if (role == "developer") {
    role = "system";
  }
  if (!IsChatRole(role)) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, at + ".role", WrongRole(role));
  }
  return absl::OkStatus();
}

absl::Status CheckOtherMessageFields(const json& message, const std::string& at, int64_t& ignored) {
  for (const auto& [name, value] : message.items()) {
    if (name == "role" || name == "content" || name == "name" || value.is_null()) {
      continue;
    }
    const bool changes_meaning = name == "tool_calls" || name == "tool_call_id" ||
                                 name == "function_call" || name == "audio" || name == "refusal" ||
                                 name == "prefix" || name == "reasoning_content";
    if (!changes_meaning) {
      ++ignored;
    } else if (!value.is_array() || !value.empty()) {
      return RowError(reason::kFieldInvalid, row_code::kUnsupported, at + "." + name,
                      "is not supported in this version; remove the field");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const json& message, const std::string& at, v1::ChatMessage& target,
                         int64_t& ignored) {
  if (!message.is_object()) {
    return WrongType(at, "an object", message.type_name());
  }
  RETURN_IF_ERROR(ReadRole(message, at, *target.mutable_role()));
  RETURN_IF_ERROR(CheckOtherMessageFields(message, at, ignored));
  RETURN_IF_ERROR(ReadContent(message, at, *target.mutable_content()));
  const json* name = FindField(message, "name");
  if (name != nullptr && !name->is_string()) {
    return WrongType(at + ".name", "a string", name->type_name());
  }
  if (name != nullptr) {
    target.set_name(name->get_ref<const std::string&>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadPrompt(const json& prompt, v1::InferenceRequest& request) {
  const bool is_list_of_prompts =
      prompt.is_array() && !prompt.empty() && (prompt[0].is_string() || prompt[0].is_array());
  if (!is_list_of_prompts) {
    return ReadOnePrompt(prompt, "prompt", request);
  }
  if (prompt.size() != 1) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "prompt",
                    absl::StrCat("holds ", prompt.size(), " prompts; write one row for each"));
  }
  return ReadOnePrompt(prompt[0], "prompt[0]", request);
}

absl::Status ReadMessages(const json& messages, v1::Chat& chat, int64_t& ignored) {
  if (!messages.is_array()) {
    return WrongType("messages", "a list", messages.type_name());
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(
        ReadMessage(messages[i], absl::StrCat("messages[", i, "]"), *chat.add_messages(), ignored));
  }
  return absl::OkStatus();
}

absl::Status ReadChoices(const json& choices, const ParseLimits& limits,
                         v1::InferenceRequest& request) {
  if (!choices.is_array()) {
    return WrongType("choices", "a list of strings or lists of token ids", choices.type_name());
  }
  // Before a list of a million is copied.
  RETURN_IF_ERROR(CheckNumChoices(static_cast<int64_t>(choices.size()), limits));
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string at = absl::StrCat("choices[", i, "]");
    v1::Continuation& choice = *request.add_choices();
    if (choices[i].is_string()) {
      choice.set_text(choices[i].get_ref<const std::string&>());
    } else if (choices[i].is_array()) {
      RETURN_IF_ERROR(ReadTokens(choices[i], at, *choice.mutable_tokens()));
    } else {
      return WrongType(at, "a string or a list of token ids", choices[i].type_name());
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPromptOptions(const json& body, absl::string_view line, bool is_nested,
                               v1::PromptOptions& options) {
  ASSIGN_OR_RETURN(const auto generation_prompt, ReadBool(body, "add_generation_prompt"));
  if (generation_prompt) {
    options.set_add_generation_prompt(*generation_prompt);
  }
  ASSIGN_OR_RETURN(const auto parse_special, ReadBool(body, "parse_special_in_content"));
  if (parse_special) {
    options.set_parse_special_in_content(*parse_special);
  }
  constexpr char kArguments[] = "chat_template_kwargs";
  const json* arguments = FindField(body, kArguments);
  if (arguments == nullptr) {
    return absl::OkStatus();
  }
  if (!arguments->is_object()) {
    return WrongType(kArguments, "an object", arguments->type_name());
  }
  // Templates write objects in the caller's order, which `body` has lost.
  options.set_chat_template_kwargs(is_nested ? MemberText(line, {"body", kArguments})
                                             : MemberText(line, {kArguments}));
  return absl::OkStatus();
}

}  // namespace nightshift
