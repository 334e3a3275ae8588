#include "engine/text/tokenizer_spec.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// What a replacement may turn one byte into, so that a file cannot make texts explode: Metaspace
// needs 3.
constexpr size_t kMaxReplacementBytes = 64;

absl::Status Problem(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer ", where, ": ", what));
}

absl::Status CheckCount(absl::string_view field, size_t count, size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return Problem(field, absl::StrCat(count, " entries, at most ", limit));
}

absl::Status CheckId(absl::string_view field, int32_t id, size_t vocabulary, bool optional) {
  if (optional && id == -1) return absl::OkStatus();
  if (id >= 0 && static_cast<size_t>(id) < vocabulary) return absl::OkStatus();
  return Problem(field, absl::StrCat("id ", id, " outside the vocabulary of ", vocabulary));
}

absl::Status CheckText(absl::string_view where, absl::string_view text, size_t least) {
  if (text.size() < least || text.size() > kMaxReplacementBytes) {
    return Problem(where,
                   absl::StrCat(text.size(), " bytes, want ", least, " to ", kMaxReplacementBytes));
  }
  if (FindInvalidUtf8(text) != absl::string_view::npos) return Problem(where, "invalid UTF-8");
  return absl::OkStatus();
}

bool IsScored(const TokenizerSpec& spec) {
  return spec.model == kScoredBpe || spec.model == kUnigram;
}

absl::Status ValidateTokens(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("tokens", spec.tokens.size(), kMaxVocabulary));
  if (spec.tokens.empty()) return Problem("tokens", "none");
  const size_t limit = IsScored(spec) ? kMaxScoredTokenBytes : kMaxTokenBytes;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    if (token.size() > limit) {
      return Problem(absl::StrCat("tokens[", id, "]"),
                     absl::StrCat(token.size(), " bytes, at most ", limit));
    }
    if (spec.model != kByteBpe && FindInvalidUtf8(token) != absl::string_view::npos) {
      return Problem(absl::StrCat("tokens[", id, "]"), "invalid UTF-8");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateScores(const TokenizerSpec& spec) {
  const size_t wanted = IsScored(spec) ? spec.tokens.size() : 0;
  if (spec.scores.size() != wanted) {
    return Problem("scores", absl::StrCat(spec.scores.size(), " entries, want ", wanted));
  }
  for (size_t id = 0; id < spec.scores.size(); ++id) {
    if (!std::isfinite(spec.scores[id])) {
      return Problem(absl::StrCat("scores[", id, "]"), "not a finite number");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateMerges(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("merges", spec.merges.size(), IsScored(spec) ? 0 : kMaxMerges));
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const TokenizerSpec::Merge& merge = spec.merges[rank];
    for (const int32_t id : {merge.left, merge.right, merge.merged}) {
      RETURN_IF_ERROR(CheckId(absl::StrCat("merges[", rank, "]"), id, spec.tokens.size(), false));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateAddedTokens(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("added_tokens", spec.added_tokens.size(), kMaxAddedTokens));
  std::set<absl::string_view> texts;
  for (size_t i = 0; i < spec.added_tokens.size(); ++i) {
    const AddedToken& token = spec.added_tokens[i];
    const std::string name = absl::StrCat("added_tokens[", i, "]");
    RETURN_IF_ERROR(CheckId(name, token.id, spec.tokens.size(), false));
    if (token.text.empty() || token.text.size() > kMaxAddedTokenBytes) {
      return Problem(name,
                     absl::StrCat(token.text.size(), " bytes, want 1 to ", kMaxAddedTokenBytes));
    }
    if (FindInvalidUtf8(token.text) != std::string::npos) return Problem(name, "invalid UTF-8");
    if (!texts.insert(token.text).second) {
      return Problem(name, absl::StrCat("text \"", token.text, "\" given twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateNormalizer(const TokenizerSpec& spec) {
  RETURN_IF_ERROR(CheckCount("normalizer", spec.normalizer.size(), kMaxPipelineSteps));
  for (size_t i = 0; i < spec.normalizer.size(); ++i) {
    const NormalizerStep& step = spec.normalizer[i];
    const std::string name = absl::StrCat("normalizer[", i, "]");
    if (step.kind == NormalizerStep::Kind::kReplace) {
      RETURN_IF_ERROR(CheckText(absl::StrCat(name, ".from"), step.from, 1));
    }
    RETURN_IF_ERROR(CheckText(absl::StrCat(name, ".to"), step.to, 0));
  }
  return absl::OkStatus();
}

absl::Status ValidatePreTokenizer(const TokenizerSpec& spec) {
  using Kind = PreTokenizerStep::Kind;
  RETURN_IF_ERROR(CheckCount("pre_tokenizer", spec.pre_tokenizer.size(), kMaxPipelineSteps));
  for (size_t i = 0; i < spec.pre_tokenizer.size(); ++i) {
    const PreTokenizerStep& step = spec.pre_tokenizer[i];
    if (step.kind == Kind::kMetaspace || step.kind == Kind::kSplitText) {
      RETURN_IF_ERROR(CheckText(absl::StrCat("pre_tokenizer[", i, "].pattern"), step.pattern, 1));
    }
    if (step.kind == Kind::kSplitBytes && spec.model != kByteBpe) {
      return Problem(absl::StrCat("pre_tokenizer[", i, "]"),
                     "splits bytes of a model of characters");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateDecoder(const TokenizerSpec& spec) {
  const DecoderSpec& decoder = spec.decoder;
  RETURN_IF_ERROR(
      CheckCount("decoder.replacements", decoder.replacements.size(), kMaxPipelineSteps));
  for (const DecoderSpec::Replacement& replacement : decoder.replacements) {
    RETURN_IF_ERROR(CheckText("decoder.replacements.from", replacement.from, 1));
    RETURN_IF_ERROR(CheckText("decoder.replacements.to", replacement.to, 0));
  }
  RETURN_IF_ERROR(CheckText("decoder.dropped_in_first", decoder.dropped_in_first, 0));
  RETURN_IF_ERROR(CheckText("decoder.stripped", decoder.stripped, 0));
  if (decoder.strip_count < 0) return Problem("decoder.strip_count", "below 0");
  return absl::OkStatus();
}

// What a model of one kind cannot do without.
absl::Status ValidateModel(const TokenizerSpec& spec) {
  for (const char* model : {kByteBpe, kCharacterBpe, kScoredBpe, kUnigram}) {
    if (spec.model != model) continue;
    if (spec.byte_fallback && spec.model == kByteBpe) {
      return Problem("byte_fallback", "of a model of bytes");
    }
    return absl::OkStatus();
  }
  return Problem("model", absl::StrCat("\"", spec.model, "\" is not supported, only ", kByteBpe,
                                       ", ", kCharacterBpe, ", ", kScoredBpe, ", ", kUnigram));
}

}  // namespace

absl::Status ValidateTokenizerSpec(const TokenizerSpec& spec) {
  const size_t vocabulary = spec.tokens.size();
  RETURN_IF_ERROR(ValidateModel(spec));
  RETURN_IF_ERROR(ValidateTokens(spec));
  RETURN_IF_ERROR(ValidateScores(spec));
  RETURN_IF_ERROR(ValidateMerges(spec));
  RETURN_IF_ERROR(ValidateAddedTokens(spec));
  RETURN_IF_ERROR(ValidateNormalizer(spec));
  RETURN_IF_ERROR(ValidatePreTokenizer(spec));
  RETURN_IF_ERROR(ValidateDecoder(spec));
  for (const int32_t id : spec.decode_only) {
    RETURN_IF_ERROR(CheckId("decode_only", id, vocabulary, false));
  }
  for (const int32_t id : spec.eos_tokens) {
    RETURN_IF_ERROR(CheckId("eos_tokens", id, vocabulary, false));
  }
  RETURN_IF_ERROR(CheckId("unknown_token", spec.unknown_token, vocabulary, true));
  return CheckId("bos_token", spec.bos_token, vocabulary, !spec.add_bos);
}

}  // namespace nightshift
