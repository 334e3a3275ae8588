#include "engine/text/added_token_matcher.h"

#include <algorithm>
#include <utility>

#include <utf8proc.h>

#include "kernels/base/utf8.h"

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

// Whether the match [first, last) stands apart from words.
bool IsSingleWord(absl::string_view text, size_t first, size_t last) {
  if (first > 0 && IsWordCharacter(NextCharacter(text, PreviousCharacter(text, first)).character)) {
    return false;
  }
  return last == text.size() || !IsWordCharacter(NextCharacter(text, last).character);
}

size_t SkipSpacesBack(absl::string_view text, size_t offset, size_t limit) {
  while (offset > limit) {
    const size_t previous = PreviousCharacter(text, offset);
    if (!IsUnicodeSpace(NextCharacter(text, previous).character)) break;
    offset = previous;
  }
  return offset;
}

size_t SkipSpaces(absl::string_view text, size_t offset) {
  while (offset < text.size()) {
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

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.text < b.text; });
  patterns_.erase(std::unique(patterns_.begin(), patterns_.end(),
                              [](const Pattern& a, const Pattern& b) { return a.text == b.text; }),
                  patterns_.end());
  for (size_t i = 0; i < patterns_.size(); ++i) {
    has_special_ = has_special_ || patterns_[i].special;
    Bucket& bucket = by_first_byte_[ByteAt(patterns_[i].text, 0)];
    if (bucket.last == 0) bucket.first = i;
    bucket.last = i + 1;
  }
}

// Narrows the sorted bucket byte by byte. A pattern that ends at a depth is the first of those that
// share its bytes, so each depth has one candidate.
const AddedTokenMatcher::Pattern* AddedTokenMatcher::LongestAt(
    absl::string_view text, size_t offset, const std::vector<TextRange>& trusted) const {
  const Bucket bucket = by_first_byte_[ByteAt(text, offset)];
  auto first = patterns_.begin() + static_cast<std::ptrdiff_t>(bucket.first);
  auto last = patterns_.begin() + static_cast<std::ptrdiff_t>(bucket.last);
  const Pattern* longest = nullptr;
  for (size_t depth = 1; first != last; ++depth) {
    const Pattern& candidate = *first;
    if (candidate.text.size() == depth) {
      if (!candidate.special || IsInside(trusted, offset, depth)) longest = &candidate;
      ++first;
    }
    if (offset + depth == text.size()) break;
    const uint8_t byte = ByteAt(text, offset + depth);
    first = std::partition_point(first, last, [depth, byte](const Pattern& pattern) {
      return ByteAt(pattern.text, depth) < byte;
    });
    last = std::partition_point(first, last, [depth, byte](const Pattern& pattern) {
      return ByteAt(pattern.text, depth) == byte;
    });
  }
  return longest;
}

// Matches are searched from the end of the match before, whatever spaces that one swallowed, so a
// token of spaces behind an rstrip token is found inside them; Hugging Face does the same.
std::vector<AddedTokenPiece> AddedTokenMatcher::Cut(absl::string_view text,
                                                    const std::vector<TextRange>& trusted) const {
  std::vector<AddedTokenPiece> pieces;
  size_t done = 0;
  size_t spaces_end = 0;  // of the last spaces that were swallowed on the right
  const auto append = [&](size_t first, size_t last, int32_t token) {
    if (last > first) pieces.push_back({{.first = first, .length = last - first}, token});
  };
  for (size_t offset = 0; offset < text.size() && !patterns_.empty();) {
    const Pattern* pattern = LongestAt(text, offset, trusted);
    if (pattern == nullptr) {
      ++offset;
      continue;
    }
    size_t first = offset;
    size_t last = offset + pattern->text.size();
    offset = last;
    if (pattern->single_word && !IsSingleWord(text, first, last)) continue;
    if (pattern->lstrip) first = first > done ? SkipSpacesBack(text, first, done) : done;
    if (pattern->rstrip) {
      if (last >= spaces_end) spaces_end = SkipSpaces(text, last);
      last = spaces_end;
    }
    append(done, first, -1);
    append(first, last, pattern->token);
    done = last;
  }
  append(done, text.size(), -1);
  return pieces;
}

}  // namespace nightshift
