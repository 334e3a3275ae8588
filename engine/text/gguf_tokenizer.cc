// TokenizerSpecFromGguf: the tokenizer.ggml.* keys as llama.cpp's converter writes them.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "engine/text/byte_alphabet.h"
#include "engine/text/character_fallback.h"
#include "engine/text/gguf_pre_tokenizers.h"
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

absl::Status Refused(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("GGUF tokenizer: ", what));
}

// The text that SentencePiece writes for a space.
constexpr char kSpaceMark[] = "\xE2\x96\x81";

// Fills tokens, decode_only and added_tokens. Tokens of models of characters keep their texts.
absl::Status TranslateTokens(const GgufTokenizerMetadata& metadata, TokenizerSpec& spec) {
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    const std::string& text = metadata.tokens[id];
    const int32_t type = metadata.token_types.empty() ? kNormal : metadata.token_types[id];
    const auto token_id = static_cast<int32_t>(id);
    if (type < kNormal || type > kByte) {
      return Refused(absl::StrCat("token ", id, " has the unknown type ", type));
    }
    if ((type == kControl || type == kUnknown || type == kUserDefined) && !text.empty()) {
      spec.tokens.push_back(text);
      spec.added_tokens.push_back({.id = token_id, .text = text, .special = type != kUserDefined});
      continue;
    }
    std::optional<std::string> bytes =
        spec.model == kByteBpe ? BytesFromAlphabet(text) : std::optional<std::string>(text);
    if (!bytes.has_value() || type == kUnused || type == kByte) {
      spec.decode_only.push_back(token_id);
    }
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

absl::Status CheckCounts(const GgufTokenizerMetadata& metadata) {
  const size_t tokens = metadata.tokens.size();
  if (tokens > kMaxVocabulary || metadata.merges.size() > kMaxMerges) {
    return Refused(absl::StrCat(tokens, " tokens and ", metadata.merges.size(), " merges, at most ",
                                kMaxVocabulary, " and ", kMaxMerges));
  }
  if (!metadata.token_types.empty() && metadata.token_types.size() != tokens) {
    return Refused(
        absl::StrCat(metadata.token_types.size(), " token types for ", tokens, " tokens"));
  }
  return absl::OkStatus();
}

absl::Status TranslateByteLevel(const GgufTokenizerMetadata& metadata, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const GgufPreTokenizer* pre_tokenizer, FindGgufPreTokenizer(metadata.pre));
  spec.model = kByteBpe;
  if (pre_tokenizer->normalize_nfc) spec.normalizer = {{.kind = NormalizerStep::Kind::kNfc}};
  if (metadata.add_space_prefix.value_or(false)) {
    spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kPrefix});
  }
  spec.pre_tokenizer.insert(spec.pre_tokenizer.end(), pre_tokenizer->steps.begin(),
                            pre_tokenizer->steps.end());
  spec.ignore_merges = pre_tokenizer->ignore_merges;
  RETURN_IF_ERROR(TranslateTokens(metadata, spec));
  spec.add_bos = metadata.add_bos.value_or(pre_tokenizer->adds_bos && metadata.bos_token >= 0);
  return TranslateMerges(metadata, spec);
}

// Scores, spaces and bytes, as models of SentencePiece have them.
absl::Status TranslatePieces(const GgufTokenizerMetadata& metadata, TokenizerSpec& spec) {
  if (metadata.scores.size() != metadata.tokens.size()) {
    return Refused(
        absl::StrCat(metadata.scores.size(), " scores for ", metadata.tokens.size(), " tokens"));
  }
  spec.scores = metadata.scores;
  RETURN_IF_ERROR(TranslateTokens(metadata, spec));
  spec.byte_fallback =
      std::any_of(spec.tokens.begin(), spec.tokens.end(),
                  [](const std::string& token) { return ByteOfToken(token) >= 0; });
  const bool add_space_prefix = metadata.add_space_prefix.value_or(true);
  using Kind = NormalizerStep::Kind;
  if (metadata.remove_extra_whitespaces) {
    spec.normalizer.push_back({.kind = Kind::kReplacePattern, .from = " +", .to = " "});
    spec.normalizer.push_back({.kind = Kind::kReplacePattern, .from = "(?<![^ ]) "});
    spec.normalizer.push_back({.kind = Kind::kReplacePattern, .from = " (?![^ ])"});
  }
  if (add_space_prefix) spec.normalizer.push_back({.kind = Kind::kPrepend, .to = kSpaceMark});
  spec.normalizer.push_back({.kind = Kind::kReplace, .from = " ", .to = kSpaceMark});
  spec.decoder.replacements = {{.from = kSpaceMark, .to = " "}};
  spec.decoder.byte_fallback = spec.byte_fallback;
  spec.decoder.stripped = " ";
  spec.decoder.strip_count = add_space_prefix ? 1 : 0;
  return CharacterFallback::Create(spec).status();
}

// Phi-3's added tokens swallow the spaces behind them, which its tokenizer.json says and GGUF
// cannot: all but these.
void StripBehindAddedTokensOfPhi3(TokenizerSpec& spec) {
  for (AddedToken& token : spec.added_tokens)
    token.rstrip = token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
}

// The merges of SentencePiece's BPE follow from the scores, so scores must tell the tokens apart:
// a converter that knows no scores writes one number for all.
absl::Status TranslateSentencePieceBpe(const GgufTokenizerMetadata& metadata, TokenizerSpec& spec) {
  spec.model = kScoredBpe;
  RETURN_IF_ERROR(TranslatePieces(metadata, spec));
  if (!spec.byte_fallback) {
    return Refused("tokenizer.ggml.model \"llama\" without tokens of bytes is not supported");
  }
  const auto [least, most] = std::minmax_element(spec.scores.begin(), spec.scores.end());
  if (spec.scores.size() > 1 && *least == *most) {
    return Refused(absl::StrCat("all scores are ", *least,
                                ", so the order of merges is unknown; convert the model from "
                                "its tokenizer.model, or import its tokenizer.json"));
  }
  if (metadata.architecture == "phi3") StripBehindAddedTokensOfPhi3(spec);
  spec.add_bos = metadata.add_bos.value_or(metadata.bos_token >= 0);
  return absl::OkStatus();
}

absl::Status TranslateSentencePieceUnigram(const GgufTokenizerMetadata& metadata,
                                           TokenizerSpec& spec) {
  if (metadata.has_precompiled_charsmap) {
    return Refused("tokenizer.ggml.precompiled_charsmap is not supported");
  }
  spec.model = kUnigram;
  RETURN_IF_ERROR(TranslatePieces(metadata, spec));
  if (metadata.unknown_token < 0 ||
      static_cast<size_t>(metadata.unknown_token) >= spec.tokens.size()) {
    return Refused(absl::StrCat("unknown_token_id ", metadata.unknown_token,
                                " is not a token; Unigram needs one"));
  }
  spec.unknown_token = metadata.unknown_token;
  spec.fuse_unknown = true;
  spec.add_bos = metadata.add_bos.value_or(false);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufTokenizerMetadata& metadata) {
  RETURN_IF_ERROR(CheckCounts(metadata));
  TokenizerSpec spec;
  spec.bos_token = metadata.bos_token;
  if (metadata.model == "gpt2") {
    RETURN_IF_ERROR(TranslateByteLevel(metadata, spec));
  } else if (metadata.model == "llama") {
    RETURN_IF_ERROR(TranslateSentencePieceBpe(metadata, spec));
  } else if (metadata.model == "t5") {
    RETURN_IF_ERROR(TranslateSentencePieceUnigram(metadata, spec));
  } else {
    return Refused(absl::StrCat("tokenizer.ggml.model \"", metadata.model,
                                "\" is not supported, only gpt2 (byte-level BPE), llama "
                                "(SentencePiece's BPE) and t5 (Unigram)"));
  }
  if (metadata.eos_token >= 0) spec.eos_tokens.push_back(metadata.eos_token);
  if (metadata.eot_token >= 0 && metadata.eot_token != metadata.eos_token) {
    spec.eos_tokens.push_back(metadata.eot_token);
  }
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  return spec;
}

}  // namespace nightshift
