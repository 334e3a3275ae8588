#include "engine/text/prompt_encoder.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using json = nlohmann::ordered_json;

absl::Status NoTokenizer() {
  return absl::FailedPreconditionError(
      "the pack has no tokenizer: it takes token ids only, so send prompt_token_ids");
}

// One text from a list of parts {"type": "text", "text": ...}.
absl::StatusOr<std::string> JoinParts(const json& parts, const std::string& path) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_path = absl::StrCat(path, "[", i, "]");
    const json& part = parts[i];
    if (!part.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(part_path, ": want an object"));
    }
    const auto type = part.find("type");
    if (type == part.end() || *type != "text") {
      return absl::InvalidArgumentError(
          absl::StrCat(part_path, ": only parts of type \"text\" are supported"));
    }
    const auto part_text = part.find("text");
    if (part_text == part.end() || !part_text->is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(part_path, ".text: want a string"));
    }
    text += part_text->get_ref<const std::string&>();
  }
  return text;
}

// The message as templates expect it: content is one string, or null.
absl::StatusOr<json> NormalizeMessage(const json& message, const std::string& path) {
  if (!message.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": want an object"));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ".role: want a string"));
  }
  json normalized = message;
  const auto content = normalized.find("content");
  if (content == normalized.end() || content->is_string() || content->is_null()) {
    return normalized;
  }
  if (!content->is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".content: want a string or a list of parts"));
  }
  ASSIGN_OR_RETURN(std::string text, JoinParts(*content, absl::StrCat(path, ".content")));
  *content = std::move(text);
  return normalized;
}

absl::StatusOr<json> NormalizeMessages(const json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return absl::InvalidArgumentError("messages: want a list with at least one message");
  }
  json normalized = json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    ASSIGN_OR_RETURN(json message,
                     NormalizeMessage(messages[i], absl::StrCat("messages[", i, "]")));
    normalized.push_back(std::move(message));
  }
  return normalized;
}

std::vector<TextRange> Whole(absl::string_view text) {
  return {{.first = 0, .length = text.size()}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromptEncoder>> PromptEncoder::Create(const Pack& pack) {
  if (!pack.manifest().has_tokenizer) return std::unique_ptr<PromptEncoder>(new PromptEncoder());
  ASSIGN_OR_RETURN(const std::string spec_json, pack.ReadTokenizerJson());
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromJson(spec_json));
  std::string template_source;
  if (pack.manifest().has_chat_template) {
    ASSIGN_OR_RETURN(template_source, pack.ReadChatTemplate());
  }
  return Create(std::move(spec), template_source);
}

absl::StatusOr<std::unique_ptr<PromptEncoder>> PromptEncoder::Create(
    TokenizerSpec spec, const std::string& template_source) {
  std::unique_ptr<PromptEncoder> encoder(new PromptEncoder());
  ASSIGN_OR_RETURN(encoder->tokenizer_, Tokenizer::Create(std::move(spec)));
  if (!template_source.empty()) {
    ASSIGN_OR_RETURN(encoder->chat_template_, ChatTemplate::Parse(template_source));
  }
  return encoder;
}

absl::StatusOr<std::vector<int32_t>> PromptEncoder::EncodeWithBos(
    absl::string_view text, const std::vector<TextRange>& trusted) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_->Encode(text, trusted));
  const TokenizerSpec& spec = tokenizer_->spec();
  if (spec.add_bos && (ids.empty() || ids.front() != spec.bos_token)) {
    ids.insert(ids.begin(), spec.bos_token);
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> PromptEncoder::EncodePrompt(
    absl::string_view prompt, const EncodeOptions& options) const {
  if (tokenizer_ == nullptr) return NoTokenizer();
  const std::string text = absl::StrCat(prompt, options.continuation);
  return EncodeWithBos(text,
                       options.parse_special_in_content ? Whole(text) : std::vector<TextRange>());
}

absl::StatusOr<std::vector<int32_t>> PromptEncoder::EncodeChat(
    const nlohmann::ordered_json& messages, const EncodeOptions& options) const {
  if (tokenizer_ == nullptr) return NoTokenizer();
  if (chat_template_ == nullptr) {
    return absl::FailedPreconditionError(
        "the pack has no chat template: it takes prompts, not messages");
  }
  ASSIGN_OR_RETURN(const json normalized, NormalizeMessages(messages));
  const TokenizerSpec& spec = tokenizer_->spec();
  const auto text_of = [this](int32_t id) { return std::string(tokenizer_->TokenBytes(id)); };
  ASSIGN_OR_RETURN(
      RenderedText rendered,
      chat_template_->Render(
          normalized, {.add_generation_prompt = options.add_generation_prompt,
                       .bos_token = text_of(spec.bos_token),
                       .eos_token = spec.eos_tokens.empty() ? "" : text_of(spec.eos_tokens.front()),
                       .arguments = options.template_arguments,
                       .now_us = options.now_us}));
  rendered.text += options.continuation;
  return EncodeWithBos(rendered.text,
                       options.parse_special_in_content ? Whole(rendered.text) : rendered.trusted);
}

}  // namespace nightshift
