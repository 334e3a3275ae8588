#include "server/tools/import.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/checkpoint.h"
#include "engine/model/pack.h"
#include "engine/model/pack_import.h"
#include "engine/model/source_file.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"
#include "server/tools/source_texts.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxTemplateFileBytes = 16 << 20;

absl::Status WithAdvice(const absl::Status& status, const char* part, const char* advice) {
  return absl::Status(status.code(), absl::StrCat(part, ": ", status.message(), "; ", advice));
}

void AddFiles(const std::vector<std::string>& files, Checkpoint& checkpoint) {
  for (const std::string& file : files) {
    if (std::find(checkpoint.files.begin(), checkpoint.files.end(), file) ==
        checkpoint.files.end()) {
      checkpoint.files.push_back(file);
    }
  }
}

// The tokenizer as the pack keeps it, tried out; nothing when the source has none.
absl::StatusOr<std::optional<std::string>> ImportTokenizer(const ImportOptions& options,
                                                           Checkpoint& checkpoint,
                                                           std::vector<std::string>& notes) {
  constexpr char kAdvice[] = "--without-tokenizer imports the model for token ids only";
  auto tokenizer = ReadTokenizer(checkpoint, options.source);
  if (!tokenizer.ok()) {
    return WithAdvice(tokenizer.status(), "tokenizer", kAdvice);
  }
  if (!tokenizer->value) {
    notes.push_back("the source has no tokenizer: the pack takes token ids only");
    return std::optional<std::string>();
  }
  AddFiles(tokenizer->files, checkpoint);
  ModelConfig& config = checkpoint.model.config;
  if (config.eos_tokens.empty()) {
    std::copy_if(tokenizer->value->eos_tokens.begin(), tokenizer->value->eos_tokens.end(),
                 std::back_inserter(config.eos_tokens),
                 [&config](int32_t token) { return token >= 0 && token < config.vocabulary; });
  }
  const int64_t num_tokens = static_cast<int64_t>(tokenizer->value->tokens.size());
  if (num_tokens > config.vocabulary) {
    notes.push_back(absl::StrCat("the tokenizer has ", num_tokens, " tokens, the model ",
                                 config.vocabulary, ": prompts with the rest will be refused"));
  }
  std::string json = TokenizerSpecToJson(*tokenizer->value);
  if (auto created = Tokenizer::Create(*std::move(tokenizer->value)); !created.ok()) {
    return WithAdvice(created.status(), "tokenizer", kAdvice);
  }
  return std::optional<std::string>(std::move(json));
}

absl::StatusOr<std::optional<std::string>> ImportTemplate(const ImportOptions& options,
                                                          Checkpoint& checkpoint,
                                                          std::vector<std::string>& notes) {
  constexpr char kAdvice[] = "--without-template imports the model without it, for raw prompts";
  if (!options.chat_template_file.empty()) {
    ASSIGN_OR_RETURN(std::string text,
                     ReadTextFile(options.chat_template_file, kMaxTemplateFileBytes));
    RETURN_IF_ERROR(ChatTemplate::Parse(text).status());
    AddFiles({options.chat_template_file}, checkpoint);
    return std::optional<std::string>(std::move(text));
  }
  auto chat_template = ReadChatTemplate(checkpoint, options.source);
  if (!chat_template.ok()) {
    return WithAdvice(chat_template.status(), "chat template", kAdvice);
  }
  if (!chat_template->value) {
    notes.push_back("the source has no chat template: the pack takes raw prompts only");
    return std::optional<std::string>();
  }
  if (auto parsed = ChatTemplate::Parse(*chat_template->value); !parsed.ok()) {
    return WithAdvice(parsed.status(), "chat template", kAdvice);
  }
  AddFiles(chat_template->files, checkpoint);
  return std::move(chat_template->value);
}

// Its own output is no source; what is asked for is likely another.
absl::Status RefusePack(const std::string& source) {
  std::error_code error;
  const std::filesystem::path folder = source;
  return std::filesystem::exists(folder / kExtentFile, error) &&
                 std::filesystem::exists(folder / kManifestFile, error)
             ? absl::InvalidArgumentError(absl::StrCat(
                   source, " is a pack already: serve it (nightshiftd --model ", source,
                   "), or import the model that it was made from"))
             : absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImportSummary> ImportModel(const ImportOptions& options) {
  RETURN_IF_ERROR(RefusePack(options.source));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(options.source));
  PackImportOptions pack_options{.output = options.output,
                                 .model_name = options.name,
                                 .types = options.types,
                                 .progress = options.progress};
  std::vector<std::string> notes;
  if (!options.without_tokenizer) {
    ASSIGN_OR_RETURN(pack_options.tokenizer_json, ImportTokenizer(options, checkpoint, notes));
  }
  // Rendered text is of no use without a tokenizer.
  if (!pack_options.tokenizer_json && !options.chat_template_file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--chat-template ", options.chat_template_file,
                                                   ": the pack has no tokenizer to read its text"));
  }
  if (pack_options.tokenizer_json && !options.without_template) {
    ASSIGN_OR_RETURN(pack_options.chat_template, ImportTemplate(options, checkpoint, notes));
  }
  ASSIGN_OR_RETURN(ImportedPack pack, ImportPack(checkpoint, pack_options));
  std::move(pack.notes.begin(), pack.notes.end(), std::back_inserter(notes));
  return ImportSummary{std::move(pack.manifest), std::move(notes)};
}

}  // namespace nightshift
