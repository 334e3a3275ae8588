// The texts of a published model that are not weights: tokenizer and chat template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/checkpoint.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// A text and the files that it came from.
template <typename T>
struct FromFiles {
  std::optional<T> value;  // nothing when the source has none
  std::vector<std::string> files;
};

// From tokenizer.json and tokenizer_config.json, or GGUF's tokenizer.* keys.
// Errors: INVALID_ARGUMENT naming what this version cannot run.
absl::StatusOr<FromFiles<TokenizerSpec>> ReadTokenizer(const Checkpoint& checkpoint,
                                                       const std::string& source);

// From chat_template.jinja, chat_template.json or tokenizer_config.json (where several are named:
// "default"), in this order as Hugging Face has it, or GGUF's tokenizer.chat_template. Not parsed.
// Errors: INVALID_ARGUMENT for a file that is not what its name says.
absl::StatusOr<FromFiles<std::string>> ReadChatTemplate(const Checkpoint& checkpoint,
                                                        const std::string& source);

}  // namespace nightshift
