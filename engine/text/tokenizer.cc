#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/added_token_matcher.h"
#include "engine/text/byte_pair_merger.h"
#include "engine/text/normal_form.h"
#include "engine/text/split_pattern.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Positions inside a piece are kept in 32 bits.
constexpr size_t kMaxTextBytes = size_t{1} << 30;
// NFC makes a text at most this many times shorter: three jamo of 3 bytes are a syllable of 3 bytes.
constexpr int64_t kMaxComposition = 3;

}  // namespace

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
  for (const AddedToken& token : spec_.added_tokens) {
    const auto id = static_cast<size_t>(token.id);
    spec_.tokens[id] = token.text;
    special_[id] = token.special;
  }
  for (const std::string& token : spec_.tokens) {
    longest_token_bytes_ = std::max(longest_token_bytes_, static_cast<int64_t>(token.size()));
  }
  for (const std::string& pattern : spec_.split_patterns) {
    ASSIGN_OR_RETURN(SplitPattern compiled, SplitPattern::Create(pattern));
    split_patterns_.push_back(std::move(compiled));
  }
  added_tokens_ = std::make_unique<AddedTokenMatcher>(spec_.added_tokens, spec_.normalize_nfc);
  merger_ = std::make_unique<BytePairMerger>(spec_, special_);
  return absl::OkStatus();
}

int64_t Tokenizer::LeastTokens(int64_t text_bytes) const {
  const int64_t bytes_a_token = longest_token_bytes_ * (spec_.normalize_nfc ? kMaxComposition : 1);
  return text_bytes / bytes_a_token;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(
    absl::string_view text, const std::vector<TextRange>& trusted) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text of ", text.size(), " bytes, at most ", kMaxTextBytes));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", invalid));
  }
  std::vector<int32_t> ids;
  for (const AddedTokenPiece& piece : added_tokens_->Cut(text, trusted)) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
    } else {
      RETURN_IF_ERROR(EncodeOrdinary(text.substr(piece.range.first, piece.range.length), ids));
    }
  }
  return ids;
}

absl::Status Tokenizer::EncodeOrdinary(absl::string_view text, std::vector<int32_t>& ids) const {
  std::string changed;
  if (spec_.normalize_nfc) text = changed = NormalizeNfc(text);
  if (spec_.add_prefix_space && text.substr(0, 1) != " ") text = changed = absl::StrCat(" ", text);
  std::vector<absl::string_view> pieces = {text};
  std::vector<absl::string_view> split;
  for (const SplitPattern& pattern : split_patterns_) {
    split.clear();
    for (const absl::string_view piece : pieces)
      RETURN_IF_ERROR(pattern.Split(piece, split));
    pieces.swap(split);
  }
  BytePairMerger::Scratch scratch;
  for (const absl::string_view piece : pieces)
    merger_->Encode(piece, scratch, ids);
  return absl::OkStatus();
}

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= spec_.tokens.size()) return {};
  return spec_.tokens[static_cast<size_t>(id)];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < special_.size() && special_[static_cast<size_t>(id)];
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    absl::StrAppend(&bytes, TokenBytes(id));
  }
  std::string text;
  MoveCompleteCharacters(bytes, /*finish=*/true, text);
  return text;
}

void TextAccumulator::Append(int32_t token) {
  if (tokenizer_.IsSpecial(token)) return;
  absl::StrAppend(&pending_, tokenizer_.TokenBytes(token));
  MoveCompleteCharacters(pending_, /*finish=*/false, text_);
}

void TextAccumulator::Finish() {
  MoveCompleteCharacters(pending_, /*finish=*/true, text_);
}

}  // namespace nightshift
