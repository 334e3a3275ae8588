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
  bool normalized = false;  // found in normalised text, in the form that it takes there
};

// One step from a caller's text to the text that is split.
struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,           // white space at the sides that `left` and `right` name
    kPrepend,         // `to` goes before a text that is not empty
    kReplace,         // each `from` becomes `to`
    kReplacePattern,  // each match of the expression `from` (split_pattern.h) becomes `to`
  };
  Kind kind = Kind::kNfc;
  std::string from = {};
  std::string to = {};
  bool left = false;
  bool right = false;
};

// What becomes of the matches of a split; the names are Hugging Face's.
enum class SplitBehavior {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// One step from normalised text to the pieces that the model sees one by one. Each step works on
// every piece that the steps before left.
struct PreTokenizerStep {
  enum class Kind {
    kSplit,       // at matches of `pattern`, an expression (split_pattern.h)
    kSplitText,   // at each `pattern`, plain text
    kSplitBytes,  // as kSplit, but each byte of the piece is one character, as behind ByteLevel
    kPrefix,      // a space goes before a piece that does not begin with one
    kMetaspace,   // each space becomes `pattern`, which also goes before a piece as `prefix` says
  };
  enum class Prefix { kAlways, kFirst, kNever };  // kFirst: only at the start of the whole text
  Kind kind = Kind::kSplit;
  std::string pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and what lies between them change roles
  Prefix prefix = Prefix::kAlways;
};

// How token texts become text, for models whose tokens are characters.
struct DecoderSpec {
  struct Replacement {
    std::string from;
    std::string to;
  };
  std::vector<Replacement> replacements;  // in each token, in this order
  // In the first token of a text this is removed before anything is replaced.
  std::string dropped_in_first;
  // Tokens <0x00> to <0xFF> are bytes. A run of them that is not UTF-8 becomes one U+FFFD a byte.
  bool byte_fallback = false;
  // So often at most this goes from the start of the whole text.
  std::string stripped;
  int32_t strip_count = 0;
};

// The models. Byte-level BPE works on bytes, the others on characters.
inline constexpr char kByteBpe[] = "byte_bpe";
inline constexpr char kCharacterBpe[] = "bpe";      // merges by rank
inline constexpr char kScoredBpe[] = "scored_bpe";  // any two symbols whose text is a token merge,
                                                    // best score first (SentencePiece)
inline constexpr char kUnigram[] = "unigram";

struct TokenizerSpec {
  std::string model = kByteBpe;
  // By id. byte_bpe: token bytes (already decoded from the byte-to-unicode alphabet), may hold any
  // byte. Others: texts, valid UTF-8. Empty for a hole in the vocabulary. Added tokens, too, are
  // decoded as what stands here.
  std::vector<std::string> tokens;
  // Ids that can be decoded, and never come from text.
  std::vector<int32_t> decode_only;
  // By id, for scored_bpe and unigram; finite.
  std::vector<double> scores;
  // For byte_bpe and bpe: merges in rank order as pairs of ids, and the id they make.
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t merged = 0;
  };
  std::vector<Merge> merges;
  bool ignore_merges = false;  // a pre-token that is itself a token is not split (Llama-3)
  // A character without a token becomes the tokens <0x00> to <0xFF> of its bytes; all are there.
  bool byte_fallback = false;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  DecoderSpec decoder;
  std::vector<AddedToken> added_tokens;
  int32_t bos_token = -1;
  // Stands for a byte or character without a token; -1 drops it.
  int32_t unknown_token = -1;
  bool fuse_unknown = false;  // a run of such bytes or characters is one unknown_token
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
// For scored_bpe and unigram, whose work grows with it: SentencePiece makes 16 characters at most.
inline constexpr size_t kMaxScoredTokenBytes = 1024;
inline constexpr size_t kMaxPipelineSteps = 16;

// Checks what every tokenizer must keep: ids in range, counts within the bounds above, added tokens
// unique and not empty. Errors: INVALID_ARGUMENT naming the field and its index.
absl::Status ValidateTokenizerSpec(const TokenizerSpec& spec);

std::string TokenizerSpecToJson(const TokenizerSpec& spec);
// Also reads what was written before there were normalizer and pre-tokenizer steps.
// Errors: INVALID_ARGUMENT naming the field; ids out of range, overlong counts.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromJson(const std::string& text);

// From a Hugging Face tokenizer.json (and tokenizer_config.json, may be empty: add_bos_token,
// bos_token, eos_token). What the file asks and we do not have is refused by name.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromHuggingFace(
    const std::string& tokenizer_json, const std::string& tokenizer_config_json);

// The tokenizer.* keys of a GGUF file.
struct GgufTokenizerMetadata {
  std::string architecture = {};  // general.architecture
  std::string model = {};  // tokenizer.ggml.model
  std::string pre = {};    // tokenizer.ggml.pre
  std::vector<std::string> tokens = {};
  std::vector<double> scores = {};
  std::vector<int32_t> token_types =
      {};  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges = {};
  int32_t bos_token = -1;
  int32_t eos_token = -1;
  int32_t unknown_token = -1;
  int32_t eot_token = -1;  // a second end id, where given
  // Absent: what `model` and `pre` imply.
  std::optional<bool> add_bos = {};
  std::optional<bool> add_space_prefix = {};
  bool remove_extra_whitespaces = false;
  bool has_precompiled_charsmap = false;
};
// Models gpt2 (byte-level BPE, with a `pre` whose split patterns we have), llama (SentencePiece's
// BPE) and t5 (Unigram). Errors: INVALID_ARGUMENT naming what is not had, or the entry that does
// not fit.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufTokenizerMetadata& metadata);

}  // namespace nightshift
