#include "server/tools/random_import.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/known_shapes.h"
#include "engine/model/pack.h"
#include "engine/model/random_pack.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"
#include "server/tools/source_texts.h"

namespace nightshift {
namespace {

// The texts of another model.
struct Texts {
  TokenizerSpec tokenizer;
  std::optional<std::string> chat_template;
};

absl::StatusOr<Texts> TextsOfPack(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(path));
  Texts texts;
  ASSIGN_OR_RETURN(const std::string json, pack->ReadTokenizerJson());
  ASSIGN_OR_RETURN(texts.tokenizer, TokenizerSpecFromJson(json));
  if (pack->manifest().has_chat_template) {
    ASSIGN_OR_RETURN(texts.chat_template, pack->ReadChatTemplate());
  }
  return texts;
}

absl::StatusOr<Texts> TextsOfFolder(const std::string& path) {
  const Checkpoint folder;  // of Hugging Face, of which only texts are read
  ASSIGN_OR_RETURN(FromFiles<TokenizerSpec> tokenizer, ReadTokenizer(folder, path));
  if (!tokenizer.value) {
    return absl::NotFoundError(
        absl::StrCat(path, " is neither a pack nor a folder with a tokenizer.json"));
  }
  ASSIGN_OR_RETURN(FromFiles<std::string> chat_template, ReadChatTemplate(folder, path));
  return Texts{*std::move(tokenizer.value), std::move(chat_template.value)};
}

// Both tried out.
absl::StatusOr<Texts> ReadTexts(const std::string& path) {
  const bool is_pack = std::filesystem::exists(path + "/" + kManifestFile);
  ASSIGN_OR_RETURN(Texts texts, is_pack ? TextsOfPack(path) : TextsOfFolder(path));
  RETURN_IF_ERROR(Tokenizer::Create(texts.tokenizer).status());
  if (texts.chat_template) {
    RETURN_IF_ERROR(ChatTemplate::Parse(*texts.chat_template).status());
  }
  return texts;
}

void TakeEndTokens(const TokenizerSpec& tokenizer, ModelConfig& config) {
  config.eos_tokens.clear();
  for (const int32_t token : tokenizer.eos_tokens) {
    if (token >= 0 && token < config.vocabulary) {
      config.eos_tokens.push_back(token);
    }
  }
}

}  // namespace

absl::StatusOr<ImportSummary> ImportRandom(const RandomImportOptions& options) {
  RandomPackOptions pack{.output = options.output,
                         .shape = {},
                         .weights = options.weights,
                         .seed = options.seed,
                         .model_name = options.name,
                         .progress = options.progress};
  ASSIGN_OR_RETURN(pack.shape, FindKnownShape(options.shape));
  ModelConfig& config = pack.shape.config;
  ImportSummary summary;
  if (options.tokenizer.empty()) {
    summary.notes.push_back("random weights without a tokenizer: the pack takes token ids only");
  } else {
    auto texts = ReadTexts(options.tokenizer);
    if (!texts.ok()) {
      return absl::Status(texts.status().code(),
                          absl::StrCat("--tokenizer: ", texts.status().message()));
    }
    TakeEndTokens(texts->tokenizer, config);
    const int64_t num_tokens = static_cast<int64_t>(texts->tokenizer.tokens.size());
    if (num_tokens > config.vocabulary) {
      summary.notes.push_back(absl::StrCat("the tokenizer has ", num_tokens, " tokens, the model ",
                                           config.vocabulary,
                                           ": prompts with the rest will be refused"));
    }
    pack.tokenizer_json = TokenizerSpecToJson(texts->tokenizer);
    pack.chat_template = std::move(texts->chat_template);
  }
  ASSIGN_OR_RETURN(summary.manifest, WriteRandomPack(pack));
  return summary;
}

}  // namespace nightshift
