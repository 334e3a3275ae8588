#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "engine/text/added_token_matcher.h"
#include "engine/text/byte_pair_merger.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/text_normalizer.h"
#include "engine/text/unigram_model.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// Positions inside a piece are kept in 32 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

absl::Status CheckSize(absl::string_view what, size_t bytes) {
  if (bytes <= kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of ", bytes, " bytes, at most ", kMaxTextBytes));
}

// Which tokens text may become: not special, not decode-only, not a hole of the vocabulary.
std::vector<bool> UsableTokens(const TokenizerSpec& spec, const std::vector<bool>& special) {
  std::vector<bool> usable(spec.tokens.size());
  for (size_t id = 0; id < usable.size(); ++id)
    usable[id] = !special[id] && !spec.tokens[id].empty();
  for (const int32_t id : spec.decode_only)
    usable[static_cast<size_t>(id)] = false;
  return usable;
}

// The parts of `ranges` inside [first, first + length), counted from `first`.
std::vector<TextRange> Inside(const std::vector<TextRange>& ranges, const TextRange& piece) {
  std::vector<TextRange> inside;
  for (const TextRange& range : ranges) {
    const size_t first = std::max(range.first, piece.first);
    const size_t last = std::min(range.first + range.length, piece.first + piece.length);
    if (first < last) inside.push_back({.first = first - piece.first, .length = last - first});
  }
  return inside;
}

}  // namespace

// The working memory of one Encode.
struct Tokenizer::Scratch {
  PreTokenizer::Pieces pieces;
  BytePairMerger::Scratch merging;
  UnigramModel::Scratch unigram;
};

Tokenizer::Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  RETURN_IF_ERROR(ValidateTokenizerSpec(spec));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(spec)));
  RETURN_IF_ERROR(tokenizer->Build());
  return tokenizer;
}

absl::Status Tokenizer::Build() {
  special_.resize(spec_.tokens.size());
  absl::flat_hash_set<absl::string_view> special_texts;
  for (const AddedToken& token : spec_.added_tokens) {
    if (!token.special) continue;
    special_[static_cast<size_t>(token.id)] = true;
    special_texts_.emplace(token.id, token.text);
    special_texts.insert(token.text);
  }
  // A second token with the text of a special one is special too.
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    if (special_texts.contains(spec_.tokens[id])) special_[id] = true;
  }
  ASSIGN_OR_RETURN(TextNormalizer normalizer, TextNormalizer::Create(spec_.normalizer));
  normalizer_ = std::make_unique<TextNormalizer>(std::move(normalizer));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec_.pre_tokenizer));
  pre_tokenizer_ = std::make_unique<PreTokenizer>(std::move(pre_tokenizer));
  RETURN_IF_ERROR(BuildMatchers());
  const std::vector<bool> usable = UsableTokens(spec_, special_);
  if (spec_.model == kUnigram) {
    ASSIGN_OR_RETURN(unigram_, UnigramModel::Create(spec_, usable));
  } else {
    ASSIGN_OR_RETURN(merger_, BytePairMerger::Create(spec_, usable));
  }
  decoder_ = std::make_unique<TokenDecoder>(spec_);
  most_bytes_of_a_token_ = MostBytesOfAToken();
  return absl::OkStatus();
}

// Of tokens that look alike once normalised, special ones count, then those that came first.
absl::Status Tokenizer::BuildMatchers() {
  std::vector<AddedTokenMatcher::Pattern> raw;
  std::vector<AddedTokenMatcher::Pattern> normalized;
  for (const bool special : {true, false}) {
    for (const AddedToken& token : spec_.added_tokens) {
      if (token.special != special) continue;
      std::string text = token.text;
      if (token.normalized) {
        ASSIGN_OR_RETURN(NormalizedText form, normalizer_->Run(text, {}));
        text = std::move(form.text);
        if (text.empty()) {
          return absl::InvalidArgumentError(
              absl::StrCat("tokenizer added token \"", token.text, "\": empty when normalised"));
        }
      }
      (token.normalized ? normalized : raw)
          .push_back({.text = std::move(text),
                      .token = token.id,
                      .special = token.special,
                      .lstrip = token.lstrip,
                      .rstrip = token.rstrip,
                      .single_word = token.single_word});
    }
  }
  raw_tokens_ = std::make_unique<AddedTokenMatcher>(std::move(raw));
  normalized_tokens_ = std::make_unique<AddedTokenMatcher>(std::move(normalized));
  return absl::OkStatus();
}

int64_t Tokenizer::MostBytesOfAToken() const {
  const bool has_unknown = spec_.unknown_token >= 0 && !spec_.byte_fallback;
  if (has_unknown && (spec_.fuse_unknown || spec_.model == kUnigram)) return 0;
  size_t longest = 4;  // an unknown character
  for (const std::string& token : spec_.tokens)
    longest = std::max(longest, token.size());
  for (const PreTokenizerStep& step : spec_.pre_tokenizer) {
    if (step.behavior == SplitBehavior::kRemoved) return 0;
  }
  return static_cast<int64_t>(longest * normalizer_->most_source_bytes());
}

int64_t Tokenizer::LeastTokens(int64_t text_bytes) const {
  return most_bytes_of_a_token_ == 0 ? 0 : text_bytes / most_bytes_of_a_token_;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(
    absl::string_view text, const std::vector<TextRange>& trusted) const {
  RETURN_IF_ERROR(CheckSize("text", text.size()));
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", invalid));
  }
  Scratch scratch;
  std::vector<int32_t> ids;
  for (const AddedTokenPiece& piece : raw_tokens_->Cut(text, trusted)) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
      continue;
    }
    std::vector<TextRange> inside;
    if (normalized_tokens_->has_special()) inside = Inside(trusted, piece.range);
    RETURN_IF_ERROR(EncodeSegment(text.substr(piece.range.first, piece.range.length), inside,
                                  piece.range.first == 0, scratch, ids));
  }
  return ids;
}

absl::Status Tokenizer::EncodeSegment(absl::string_view text, const std::vector<TextRange>& trusted,
                                      bool at_start, Scratch& scratch,
                                      std::vector<int32_t>& ids) const {
  if (normalizer_->is_identity() && normalized_tokens_->empty()) {
    return EncodeOrdinary(text, at_start, scratch, ids);
  }
  ASSIGN_OR_RETURN(const NormalizedText normalized, normalizer_->Run(text, trusted));
  RETURN_IF_ERROR(CheckSize("normalised text", normalized.text.size()));
  const absl::string_view view = normalized.text;
  for (const AddedTokenPiece& piece : normalized_tokens_->Cut(view, normalized.trusted)) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
      continue;
    }
    const bool is_start = at_start && normalized.keeps_start && piece.range.first == 0;
    RETURN_IF_ERROR(
        EncodeOrdinary(view.substr(piece.range.first, piece.range.length), is_start, scratch, ids));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeOrdinary(absl::string_view text, bool at_start, Scratch& scratch,
                                       std::vector<int32_t>& ids) const {
  RETURN_IF_ERROR(pre_tokenizer_->Run(text, at_start, scratch.pieces));
  const absl::string_view changed = scratch.pieces.text;
  RETURN_IF_ERROR(CheckSize("text to split", changed.size()));
  for (const TextRange& range : scratch.pieces.ranges) {
    const absl::string_view piece = changed.substr(range.first, range.length);
    if (unigram_ != nullptr) {
      unigram_->Encode(piece, scratch.unigram, ids);
    } else {
      merger_->Encode(piece, scratch.merging, ids);
    }
  }
  return absl::OkStatus();
}

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  const auto special = special_texts_.find(id);
  return special == special_texts_.end() ? decoder_->BytesOf(id) : special->second;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < special_.size() && special_[static_cast<size_t>(id)];
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  TokenDecoder::Progress progress = decoder_->Start();
  for (const int32_t id : ids) {
    if (!skip_special || !IsSpecial(id)) decoder_->Append(id, progress);
  }
  decoder_->Finish(progress);
  return std::move(progress.text);
}

void TextAccumulator::Append(int32_t token) {
  if (!tokenizer_.IsSpecial(token)) tokenizer_.decoder().Append(token, progress_);
}

void TextAccumulator::Finish() {
  tokenizer_.decoder().Finish(progress_);
}

}  // namespace nightshift
