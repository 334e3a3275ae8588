// What Python's str methods do, on text that keeps its origin. Counts are in characters where
// Python counts characters; the text is valid UTF-8. All pay the budget for their work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/origin_text.h"

namespace nightshift {

// Which ends of a text to strip.
struct StripSides {
  bool left = true;
  bool right = true;
};

// Without the characters of `characters` at the ends; nullptr strips white space.
OriginText Strip(const OriginText& text, const OriginText* characters, StripSides sides);

// The byte offset of `wanted` at or after `from`, or npos. Linear in both.
size_t FindText(absl::string_view text, absl::string_view wanted, size_t from);

// Each occurrence of `old` replaced, at most `limit` (negative: all). Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<OriginText> Replace(const OriginText& text, const OriginText& old,
                                   const OriginText& replacement, int64_t limit,
                                   JinjaBudget& budget);

// Parts between separators, at most `limit` cuts (negative: all), counted from the right if
// `from_right`. Errors: INVALID_ARGUMENT for an empty separator; RESOURCE_EXHAUSTED.
absl::StatusOr<std::vector<OriginText>> SplitText(const OriginText& text,
                                                  const OriginText& separator, int64_t limit,
                                                  bool from_right, JinjaBudget& budget);
// Parts between runs of white space.
absl::StatusOr<std::vector<OriginText>> SplitAtSpaces(const OriginText& text, int64_t limit,
                                                      bool from_right, JinjaBudget& budget);

// Lines as Python's str.splitlines cuts them, at all of Unicode's line ends.
absl::StatusOr<std::vector<OriginText>> SplitIntoLines(const OriginText& text, bool keep_ends,
                                                       JinjaBudget& budget);

// kTitle is Python's str.title, kJinjaTitle the filter, where only space, hyphen and opening
// brackets begin a word.
enum class LetterCase : uint8_t { kUpper, kLower, kCapital, kTitle, kJinjaTitle, kSwapped };
// Character by character (utf8proc), so letters whose capital is two letters stay as they are.
OriginText ChangeCase(const OriginText& text, LetterCase letter_case);

// Characters as Python counts them.
int64_t CountCharacters(absl::string_view text);

// The byte offset of character `index`, at most the length.
size_t OffsetOfCharacter(absl::string_view text, int64_t index);

// The last byte offset of `wanted`, which occurs in the text. Linear.
size_t LastPlace(absl::string_view text, absl::string_view wanted);

// What isalpha, isdecimal, isdigit, isalnum and isspace ask of each character.
enum class CharacterClass : uint8_t { kLetter, kDecimal, kDigit, kLetterOrNumber, kSpace };
// True if there are characters and all are of the class.
bool ConsistsOf(absl::string_view text, CharacterClass wanted);
// Some letter has a case, and all of those are upper (lower).
bool IsOfOneCase(absl::string_view text, bool upper);

// str.isspace: Unicode white space and the four information separators.
bool IsPythonSpace(char32_t character);

}  // namespace nightshift
