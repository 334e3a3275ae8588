// PromptEncoder: a caller's prompt or messages to the token ids that a request starts with.
// The one place that decides about BOS: a raw prompt gets it when the tokenizer asks; a rendered
// chat gets none unless the template forgot it, and never two.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/model/pack.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace nightshift {

struct EncodeOptions {
  // Recognise special-token text inside the caller's own text, as Hugging Face does. Off: nobody
  // forges a turn by writing <|im_end|> in a document.
  bool parse_special_in_content = false;
  bool add_generation_prompt = true;
  // Follows the prompt or the rendered chat, and is encoded with it as one text. The caller's own.
  std::string continuation = "";
  // chat_template_kwargs, as CheckTemplateArguments wants them.
  nlohmann::ordered_json template_arguments = nlohmann::ordered_json::object();
  // See RenderOptions.
  std::optional<int64_t> now_us = std::nullopt;
};

// Thread-safe after Create.
class PromptEncoder {
 public:
  // Loads tokenizer and template of a pack. A pack without tokenizer gives an encoder whose calls
  // answer FAILED_PRECONDITION ("takes token ids only"); one without template refuses chats alone.
  // Errors: those of Pack, TokenizerSpecFromJson, Tokenizer::Create and ChatTemplate::Parse.
  static absl::StatusOr<std::unique_ptr<PromptEncoder>> Create(const Pack& pack);
  // From the parts; an empty `template_source` means no template.
  static absl::StatusOr<std::unique_ptr<PromptEncoder>> Create(TokenizerSpec spec,
                                                               const std::string& template_source);

  // Errors: INVALID_ARGUMENT for text that is not UTF-8, with the offset; FAILED_PRECONDITION.
  absl::StatusOr<std::vector<int32_t>> EncodePrompt(absl::string_view prompt,
                                                    const EncodeOptions& options) const;
  // messages: a non-empty array of {"role": text, "content": text, null, or text parts, ...};
  // content parts {"type": "text", "text": ...} are joined to one text.
  // Errors: INVALID_ARGUMENT naming message and field, or template line and expression;
  // RESOURCE_EXHAUSTED naming a limit of the template; FAILED_PRECONDITION.
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const nlohmann::ordered_json& messages,
                                                  const EncodeOptions& options) const;
  // nullptr for a pack without tokenizer.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  bool has_chat_template() const { return chat_template_ != nullptr; }

 private:
  PromptEncoder() = default;

  // Encodes and puts BOS first where it is wanted and `ids` do not begin with it.
  absl::StatusOr<std::vector<int32_t>> EncodeWithBos(absl::string_view text,
                                                     const std::vector<TextRange>& trusted) const;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
};

}  // namespace nightshift
