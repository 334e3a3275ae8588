// TokenizerSpec: a tokenizer as data. tokenizer.json and GGUF metadata are translated to it at
// import; the pack stores it as JSON; Tokenizer runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;  // a control token: never made from a caller's text by default
  bool lstrip = false;
  bool rstrip = false;
  bool single_word = false;
  bool normalized = false;
};

struct TokenizerSpec {
  std::string model = "byte_bpe";
  // Token bytes by id (already decoded from the byte-to-unicode alphabet); may hold any byte.
  std::vector<std::string> tokens;
  // Ids whose text lies outside that alphabet: they can be decoded, and never come from text.
  std::vector<int32_t> decode_only;
  // Merges in rank order as pairs of ids, and the id they make.
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  std::vector<Merge> merges;
  bool ignore_merges = false;  // a pre-token that is itself a token is not split (Llama-3)
  // Regular expressions as tokenizer.json writes them (split_pattern.h names what is accepted),
  // applied in order: each splits the pieces that the one before left into its matches and the
  // text between them.
  std::vector<std::string> split_patterns;
  bool add_prefix_space = false;
  bool normalize_nfc = false;  // Qwen2
  std::vector<AddedToken> added_tokens;
  int32_t bos_token = -1;
  int32_t unknown_token = -1;  // stands for a byte without a token; -1 drops such bytes
  std::vector<int32_t> eos_tokens;
  bool add_bos = false;  // raw prompts start with bos_token
};

// Bounds on what a file may ask: Llama 4 has 202,048 tokens, Gemma 3 262,144; merges are about as
// many, and real added tokens stay below 64 bytes.
inline constexpr size_t kMaxVocabulary = size_t{1} << 22;
inline constexpr size_t kMaxMerges = size_t{1} << 22;
inline constexpr size_t kMaxAddedTokens = size_t{1} << 16;
inline constexpr size_t kMaxAddedTokenBytes = 512;
inline constexpr size_t kMaxTokenBytes = 1 << 16;
inline constexpr size_t kMaxSplitPatterns = 16;

// Checks what every tokenizer must keep: ids in range, counts within the bounds above, added tokens
// unique and not empty. Errors: INVALID_ARGUMENT naming the field and its index.
absl::Status ValidateTokenizerSpec(const TokenizerSpec& spec);

std::string TokenizerSpecToJson(const TokenizerSpec& spec);
// Errors: INVALID_ARGUMENT naming the field; ids out of range, overlong counts.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(const std::string& text);

// From a Hugging Face tokenizer.json (and tokenizer_config.json, may be empty: add_bos_token,
// bos_token, eos_token). What the file asks and we do not have is refused by name.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromHuggingFace(
    const std::string& tokenizer_json, const std::string& tokenizer_config_json);

// The tokenizer.* keys of a GGUF file.
struct GgufTokenizerMetadata {
  std::string model;  // tokenizer.ggml.model
  std::string pre;    // tokenizer.ggml.pre
  std::vector<std::string> tokens;
  std::vector<int32_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;
  int32_t bos_token = -1;
  int32_t eos_token = -1;
  int32_t unknown_token = -1;
  int32_t eot_token = -1;       // a second end id, where given
  std::optional<bool> add_bos;  // absent: what `pre` implies
  bool add_space_prefix = false;
};
// Only byte-level BPE ("gpt2") with a `pre` whose split patterns we have.
// Errors: INVALID_ARGUMENT naming what is not had, or the entry that does not fit.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufTokenizerMetadata& metadata);

}  // namespace nightshift
