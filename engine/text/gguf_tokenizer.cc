// TokenizerSpecFromGguf: the tokenizer.ggml.* keys as llama.cpp's converter writes them.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/text/byte_alphabet.h"
#include "engine/text/published_patterns.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

enum GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// What a value of tokenizer.ggml.pre stands for.
struct PreTokenizerRow {
  const char* name;
  std::vector<std::string> patterns;
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
};

const std::vector<PreTokenizerRow>& PreTokenizers() {
  static const std::vector<PreTokenizerRow> rows = {
      {.name = "gpt-2", .patterns = {kGpt2Pattern}},
      {.name = "smollm", .patterns = {kEachDigitPattern, kGpt2Pattern}},
      {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .adds_bos = true},
      {.name = "qwen2", .patterns = {kQwen2Pattern}, .normalize_nfc = true},
  };
  return rows;
}

absl::Status Refused(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("GGUF tokenizer: ", what));
}

absl::StatusOr<const PreTokenizerRow*> FindPreTokenizer(const std::string& name) {
  std::vector<std::string> known;
  for (const PreTokenizerRow& row : PreTokenizers()) {
    if (name == row.name) return &row;
    known.emplace_back(row.name);
  }
  return Refused(absl::StrCat("tokenizer.ggml.pre \"", name, "\" is not supported, only ",
                              absl::StrJoin(known, ", ")));
}

// Fills tokens, decode_only and added_tokens.
absl::Status TranslateTokens(const GgufTokenizerMetadata& metadata, TokenizerSpec& spec) {
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    const std::string& text = metadata.tokens[id];
    const int32_t type = metadata.token_types.empty() ? kNormal : metadata.token_types[id];
    const auto token_id = static_cast<int32_t>(id);
    if (type < kNormal || type > kByte) {
      return Refused(absl::StrCat("token ", id, " has the unknown type ", type));
    }
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      spec.tokens.push_back(text);
      spec.added_tokens.push_back({.id = token_id, .text = text, .special = type != kUserDefined});
      continue;
    }
    std::optional<std::string> bytes = BytesFromAlphabet(text);
    if (!bytes.has_value() || type == kUnused) spec.decode_only.push_back(token_id);
    spec.tokens.push_back(bytes.has_value() ? *std::move(bytes) : text);
  }
  return absl::OkStatus();
}

absl::Status TranslateMerges(const GgufTokenizerMetadata& metadata, TokenizerSpec& spec) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  ids.reserve(metadata.tokens.size());
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    ids.emplace(metadata.tokens[id], static_cast<int32_t>(id));
  }
  spec.merges.reserve(metadata.merges.size());
  for (const std::string& merge : metadata.merges) {
    // The left part may not be empty, so a first space belongs to nothing of the alphabet.
    const size_t space = merge.find(' ');
    if (space == std::string::npos) {
      return Refused(absl::StrCat("merge ", spec.merges.size(), " has no space"));
    }
    const absl::string_view text = merge;
    const auto left = ids.find(text.substr(0, space));
    const auto right = ids.find(text.substr(space + 1));
    const auto merged = ids.find(absl::StrCat(text.substr(0, space), text.substr(space + 1)));
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return Refused(absl::StrCat("merge ", spec.merges.size(), " names a token that is absent"));
    }
    spec.merges.push_back({.left = left->second, .right = right->second, .merged = merged->second});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufTokenizerMetadata& metadata) {
  if (metadata.model != "gpt2") {
    return Refused(absl::StrCat("tokenizer.ggml.model \"", metadata.model,
                                "\" is not supported, only gpt2 (byte-level BPE)"));
  }
  if (metadata.tokens.size() > kMaxVocabulary || metadata.merges.size() > kMaxMerges) {
    return Refused(absl::StrCat(metadata.tokens.size(), " tokens and ", metadata.merges.size(),
                                " merges, at most ", kMaxVocabulary, " and ", kMaxMerges));
  }
  if (!metadata.token_types.empty() && metadata.token_types.size() != metadata.tokens.size()) {
    return Refused(absl::StrCat(metadata.token_types.size(), " token types for ",
                                metadata.tokens.size(), " tokens"));
  }
  ASSIGN_OR_RETURN(const PreTokenizerRow* pre_tokenizer, FindPreTokenizer(metadata.pre));
  TokenizerSpec spec;
  spec.split_patterns = pre_tokenizer->patterns;
  spec.normalize_nfc = pre_tokenizer->normalize_nfc;
  spec.ignore_merges = pre_tokenizer->ignore_merges;
  spec.add_prefix_space = metadata.add_space_prefix;
  RETURN_IF_ERROR(TranslateTokens(metadata, spec));
  RETURN_IF_ERROR(TranslateMerges(metadata, spec));
  spec.bos_token = metadata.bos_token;
  spec.add_bos = metadata.add_bos.value_or(pre_tokenizer->adds_bos && metadata.bos_token >= 0);
  if (metadata.eos_token >= 0) spec.eos_tokens.push_back(metadata.eos_token);
  if (metadata.eot_token >= 0 && metadata.eot_token != metadata.eos_token) {
    spec.eos_tokens.push_back(metadata.eot_token);
  }
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  return spec;
}

}  // namespace nightshift
