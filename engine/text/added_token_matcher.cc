#include "engine/text/added_token_matcher.h"

#include <algorithm>

#include <utf8proc.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "engine/text/normal_form.h"
#include "engine/text/utf8.h"

namespace nightshift {
namespace {

// The symbols that Unicode counts as alphabetic: letters in circles and squares.
bool IsEnclosedLetter(char32_t character) {
  return (character >= 0x24B6 && character <= 0x24E9) ||
         (character >= 0x1F130 && character <= 0x1F149) ||
         (character >= 0x1F150 && character <= 0x1F169) ||
         (character >= 0x1F170 && character <= 0x1F189);
}

// `\w` of the Rust regex that Hugging Face uses: letters, marks, digits, connectors, joiners.
bool IsWordCharacter(char32_t character) {
  switch (utf8proc_category(static_cast<int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return character == 0x200C || character == 0x200D || IsEnclosedLetter(character);
  }
}

// Whether the match [first, last) of [begin, end) stands apart from words.
bool IsSingleWord(absl::string_view text, TextRange within, size_t first, size_t last) {
  if (first > within.first &&
      IsWordCharacter(NextCharacter(text, PreviousCharacter(text, first)).character)) {
    return false;
  }
  return last == within.first + within.length ||
         !IsWordCharacter(NextCharacter(text, last).character);
}

size_t SkipSpacesBack(absl::string_view text, size_t offset, size_t limit) {
  while (offset > limit) {
    const size_t previous = PreviousCharacter(text, offset);
    if (!IsUnicodeSpace(NextCharacter(text, previous).character)) break;
    offset = previous;
  }
  return offset;
}

size_t SkipSpaces(absl::string_view text, size_t offset, size_t limit) {
  while (offset < limit) {
    const Utf8Step step = NextCharacter(text, offset);
    if (!IsUnicodeSpace(step.character)) break;
    offset += step.length;
  }
  return offset;
}

bool IsInside(const std::vector<TextRange>& ranges, size_t first, size_t length) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), first,
                       [](size_t offset, const TextRange& range) { return offset < range.first; });
  if (after == ranges.begin()) return false;
  const TextRange& range = *(after - 1);
  return first + length <= range.first + range.length;
}

uint8_t ByteAt(absl::string_view text, size_t offset) {
  return static_cast<uint8_t>(text[offset]);
}

// Whether normal form C keeps `token` when `next` follows it.
bool SurvivesNormalization(const std::string& token, absl::string_view next) {
  return absl::StartsWith(NormalizeNfc(absl::StrCat(token, next)), token);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added_tokens, bool normalizes)
    : raw_(MakePass(added_tokens, false)),
      normalized_(MakePass(added_tokens, true)),
      normalizes_(normalizes) {}

AddedTokenMatcher::Pass AddedTokenMatcher::MakePass(const std::vector<AddedToken>& added_tokens,
                                                    bool normalized) {
  Pass pass;
  for (const AddedToken& token : added_tokens) {
    if (token.normalized == normalized) pass.sorted.push_back(&token);
  }
  std::sort(pass.sorted.begin(), pass.sorted.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->text < b->text; });
  for (size_t i = 0; i < pass.sorted.size(); ++i) {
    Bucket& bucket = pass.by_first_byte[ByteAt(pass.sorted[i]->text, 0)];
    if (bucket.last == 0) bucket.first = i;
    bucket.last = i + 1;
  }
  return pass;
}

// Narrows the sorted bucket byte by byte. A token that ends at a depth is the first of those that
// share its bytes, so each depth has one candidate.
const AddedToken* AddedTokenMatcher::LongestAt(const Pass& pass, absl::string_view text,
                                               size_t offset, size_t end,
                                               const std::vector<TextRange>& trusted) const {
  const Bucket bucket = pass.by_first_byte[ByteAt(text, offset)];
  auto first = pass.sorted.begin() + static_cast<std::ptrdiff_t>(bucket.first);
  auto last = pass.sorted.begin() + static_cast<std::ptrdiff_t>(bucket.last);
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; first != last; ++depth) {
    const AddedToken* candidate = *first;
    if (candidate->text.size() == depth) {
      if (!candidate->special || IsInside(trusted, offset, depth)) longest = candidate;
      ++first;
    }
    if (offset + depth == end) break;
    const uint8_t byte = ByteAt(text, offset + depth);
    first = std::partition_point(first, last, [depth, byte](const AddedToken* token) {
      return ByteAt(token->text, depth) < byte;
    });
    last = std::partition_point(first, last, [depth, byte](const AddedToken* token) {
      return ByteAt(token->text, depth) == byte;
    });
  }
  return longest;
}

void AddedTokenMatcher::CutOnce(const Pass& pass, absl::string_view text, TextRange range,
                                const std::vector<TextRange>& trusted,
                                std::vector<AddedTokenPiece>& pieces) const {
  const size_t end = range.first + range.length;
  size_t done = range.first;
  size_t offset = range.first;
  const auto append = [&](size_t first, size_t last, int32_t token) {
    if (last > first) pieces.push_back({{.first = first, .length = last - first}, token});
  };
  while (offset < end) {
    const AddedToken* token = LongestAt(pass, text, offset, end, trusted);
    if (token == nullptr) {
      ++offset;
      continue;
    }
    size_t first = offset;
    size_t last = offset + token->text.size();
    offset = last;
    if (token->single_word && !IsSingleWord(text, range, first, last)) continue;
    if (normalizes_ && token->normalized && last < end &&
        !SurvivesNormalization(token->text, text.substr(last, NextCharacter(text, last).length))) {
      continue;
    }
    if (token->lstrip) first = SkipSpacesBack(text, first, done);
    if (token->rstrip) last = SkipSpaces(text, last, end);
    append(done, first, -1);
    append(first, last, token->id);
    offset = done = last;
  }
  append(done, end, -1);
}

std::vector<AddedTokenPiece> AddedTokenMatcher::Cut(absl::string_view text,
                                                    const std::vector<TextRange>& trusted) const {
  std::vector<AddedTokenPiece> outer;
  CutOnce(raw_, text, {.first = 0, .length = text.size()}, trusted, outer);
  if (normalized_.sorted.empty()) return outer;
  std::vector<AddedTokenPiece> pieces;
  for (const AddedTokenPiece& piece : outer) {
    if (piece.token >= 0) {
      pieces.push_back(piece);
    } else {
      CutOnce(normalized_, text, piece.range, trusted, pieces);
    }
  }
  return pieces;
}

}  // namespace nightshift
