// PromptEncoder: a caller's prompt or messages to the token ids that a request starts with.
// The one place that decides about BOS: a raw prompt gets it when the tokenizer asks; a rendered
// chat gets none unless the template forgot it, and never two.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "engine/model/pack.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace nightshift {

struct EncodeOptions {
  // Recognise special-token text inside the caller's own text, as Hugging Face does. Off: nobody
  // forges a turn by writing <|im_end|> in a document.
  bool parse_special_in_content = false;
  bool add_generation_prompt = true;
  nlohmann::json template_arguments = nlohmann::json::object();
};

// Thread-safe after Create.
class PromptEncoder {
 public:
  // Loads tokenizer and template of a pack. A pack without tokenizer gives an encoder whose calls
  // answer FAILED_PRECONDITION ("takes token ids only"); one without template refuses chats alone.
  static absl::StatusOr<std::unique_ptr<PromptEncoder>> Create(const Pack& pack);

  absl::StatusOr<std::vector<int32_t>> EncodePrompt(absl::string_view prompt,
                                                    const EncodeOptions& options) const;
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const nlohmann::json& messages,
                                                  const EncodeOptions& options) const;
  // nullptr for a pack without tokenizer.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  bool has_chat_template() const { return chat_template_ != nullptr; }

 private:
  PromptEncoder() = default;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
};

}  // namespace nightshift
