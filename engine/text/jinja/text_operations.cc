#include "engine/text/jinja/text_operations.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include <utf8proc.h>

#include "absl/status/status.h"

#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// Whether `characters` (nullptr: white space) has the character at `offset`.
bool IsStripped(const OriginText& text, size_t offset, size_t length,
                const OriginText* characters) {
  const absl::string_view bytes(text.text().data() + offset, length);
  if (characters == nullptr) return IsPythonSpace(NextCharacter(bytes, 0).character);
  return absl::string_view(characters->text()).find(bytes) != absl::string_view::npos;
}

int32_t Upper(int32_t character) {
  return utf8proc_toupper(character);
}
int32_t Lower(int32_t character) {
  return utf8proc_tolower(character);
}

bool IsCased(int32_t character) {
  return Upper(character) != Lower(character);
}

// Characters with the Unicode property Numeric_Type=Digit: digits that are not decimals.
bool IsOtherDigit(char32_t character) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [character](const auto& range) {
    return character >= range.first && character <= range.second;
  });
}

bool IsOfClass(char32_t character, CharacterClass wanted) {
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(character));
  const bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  switch (wanted) {
    case CharacterClass::kLetter:
      return is_letter;
    case CharacterClass::kDecimal:
      return category == UTF8PROC_CATEGORY_ND;
    case CharacterClass::kDigit:
      return category == UTF8PROC_CATEGORY_ND || IsOtherDigit(character);
    case CharacterClass::kLetterOrNumber:
      return is_letter || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    case CharacterClass::kSpace:
      return IsPythonSpace(character);
  }
  return false;
}

// Whether Jinja's title writes a capital behind the character.
bool BeginsWord(char32_t character) {
  return IsPythonSpace(character) || character == '-' || character == '(' || character == '{' ||
         character == '[' || character == '<';
}

bool IsLineEnd(char32_t character) {
  return (character >= 0x0A && character <= 0x0D) || (character >= 0x1C && character <= 0x1E) ||
         character == 0x85 || character == 0x2028 || character == 0x2029;
}

}  // namespace

bool IsPythonSpace(char32_t character) {
  return IsUnicodeSpace(character) || (character >= 0x1C && character <= 0x1F);
}

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

size_t OffsetOfCharacter(absl::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index)
    offset += NextCharacter(text, offset).length;
  return offset;
}

size_t LastPlace(absl::string_view text, absl::string_view wanted) {
  if (wanted.empty()) return text.size();
  // FindText is linear, and finds the first place only.
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  return text.size() - FindText(reversed, reversed_wanted, 0) - wanted.size();
}

bool ConsistsOf(absl::string_view text, CharacterClass wanted) {
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    if (!IsOfClass(step.character, wanted)) return false;
    offset += step.length;
  }
  return !text.empty();
}

bool IsOfOneCase(absl::string_view text, bool upper) {
  bool found = false;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(step.character));
    const bool is_upper = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
    const bool is_lower = category == UTF8PROC_CATEGORY_LL;
    if (upper ? is_lower || category == UTF8PROC_CATEGORY_LT : is_upper) return false;
    found = found || is_upper || is_lower;
    offset += step.length;
  }
  return found;
}

absl::StatusOr<std::vector<OriginText>> SplitIntoLines(const OriginText& text, bool keep_ends,
                                                       JinjaBudget& budget) {
  RETURN_IF_ERROR(budget.SpendBytes(text.size()));
  std::vector<OriginText> lines;
  size_t first = 0;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text.text(), offset);
    size_t behind = offset + step.length;
    if (IsLineEnd(step.character)) {
      RETURN_IF_ERROR(budget.SpendSteps(1));
      if (step.character == '\r' && behind < text.size() && text.text()[behind] == '\n') ++behind;
      lines.push_back(text.Substring(first, (keep_ends ? behind : offset) - first));
      first = behind;
    }
    offset = behind;
  }
  if (first < text.size()) lines.push_back(text.Substring(first, text.size() - first));
  return lines;
}

OriginText Strip(const OriginText& text, const OriginText* characters, StripSides sides) {
  size_t first = 0;
  size_t last = text.size();
  while (sides.left && first < last) {
    const size_t length = NextCharacter(text.text(), first).length;
    if (!IsStripped(text, first, length, characters)) break;
    first += length;
  }
  while (sides.right && last > first) {
    const size_t previous = PreviousCharacter(text.text(), last);
    if (!IsStripped(text, previous, last - previous, characters)) break;
    last = previous;
  }
  return text.Substring(first, last - first);
}

size_t FindText(absl::string_view text, absl::string_view wanted, size_t from) {
  if (from > text.size()) return absl::string_view::npos;
  // glibc's memmem is linear (two-way); absl's and std's find can take the product of the lengths.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return absl::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

absl::StatusOr<OriginText> Replace(const OriginText& text, const OriginText& old,
                                   const OriginText& replacement, int64_t limit,
                                   JinjaBudget& budget) {
  RETURN_IF_ERROR(budget.SpendBytes(text.size() + old.size()));
  OriginText result;
  size_t done = 0;
  for (int64_t count = 0; limit < 0 || count < limit; ++count) {
    // An empty `old` stands before every character and at the end.
    size_t found = 0;
    if (!old.empty()) {
      found = FindText(text.text(), old.text(), done);
    } else if (count > 0) {
      found = done == text.size() ? absl::string_view::npos
                                  : done + NextCharacter(text.text(), done).length;
    }
    if (found == absl::string_view::npos) break;
    RETURN_IF_ERROR(budget.SpendSteps(1));
    RETURN_IF_ERROR(budget.SpendBytes(replacement.size()));
    result.Append(text, done, found - done);
    result.Append(replacement);
    done = found + old.size();
  }
  result.Append(text, done, text.size() - done);
  return result;
}

absl::StatusOr<std::vector<OriginText>> SplitText(const OriginText& text,
                                                  const OriginText& separator, int64_t limit,
                                                  bool from_right, JinjaBudget& budget) {
  if (separator.empty()) return absl::InvalidArgumentError("empty separator");
  RETURN_IF_ERROR(budget.SpendBytes(text.size() + separator.size()));
  std::vector<OriginText> parts;
  if (!from_right) {
    size_t done = 0;
    for (int64_t cuts = 0; limit < 0 || cuts < limit; ++cuts) {
      const size_t found = FindText(text.text(), separator.text(), done);
      if (found == absl::string_view::npos) break;
      RETURN_IF_ERROR(budget.SpendSteps(1));
      parts.push_back(text.Substring(done, found - done));
      done = found + separator.size();
    }
    parts.push_back(text.Substring(done, text.size() - done));
    return parts;
  }
  size_t end = text.size();
  size_t searched = end;
  for (int64_t cuts = 0; searched >= separator.size() && (limit < 0 || cuts < limit);) {
    const size_t candidate = searched - separator.size();
    if (text.text().compare(candidate, separator.size(), separator.text()) != 0) {
      --searched;
      RETURN_IF_ERROR(budget.SpendBytes(separator.size()));
      continue;
    }
    RETURN_IF_ERROR(budget.SpendSteps(1));
    parts.push_back(text.Substring(searched, end - searched));
    end = searched = candidate;
    ++cuts;
  }
  parts.push_back(text.Substring(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

absl::StatusOr<std::vector<OriginText>> SplitAtSpaces(const OriginText& text, int64_t limit,
                                                      bool from_right, JinjaBudget& budget) {
  RETURN_IF_ERROR(budget.SpendBytes(text.size()));
  // Words as byte ranges; what is beyond the limit is joined to the last, or first, of them.
  std::vector<TextRange> words;
  bool in_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text.text(), offset);
    const bool is_space = IsPythonSpace(step.character);
    if (!is_space && !in_word) {
      RETURN_IF_ERROR(budget.SpendSteps(1));
      words.push_back({.first = offset, .length = 0});
    }
    if (!is_space) words.back().length = offset + step.length - words.back().first;
    in_word = !is_space;
    offset += step.length;
  }
  if (limit >= 0 && words.size() > static_cast<size_t>(limit) + 1) {
    const auto kept = static_cast<size_t>(limit);
    if (from_right) {
      const size_t joined = words.size() - kept;
      const TextRange last = words[joined - 1];
      // Python keeps what stands before the first cut, without white space at its end.
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined - 1));
      words[0] = {.first = 0, .length = last.first + last.length};
    } else {
      words[kept].length = text.size() - words[kept].first;
      words.resize(kept + 1);
    }
  }
  std::vector<OriginText> parts;
  parts.reserve(words.size());
  for (const TextRange& word : words)
    parts.push_back(text.Substring(word.first, word.length));
  return parts;
}

OriginText ChangeCase(const OriginText& text, LetterCase letter_case) {
  OriginText result;
  bool starts_word = true;
  std::string changed;
  auto trusted = text.trusted().begin();
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text.text(), offset);
    const auto character = static_cast<int32_t>(step.character);
    bool upper =
        letter_case == LetterCase::kUpper || (letter_case != LetterCase::kLower && starts_word);
    if (letter_case == LetterCase::kSwapped) upper = Upper(character) != character;
    changed.clear();
    AppendCharacter(static_cast<char32_t>(upper ? Upper(character) : Lower(character)), changed);
    while (trusted != text.trusted().end() && trusted->first + trusted->length <= offset) {
      ++trusted;
    }
    result.Append(changed, trusted != text.trusted().end() && trusted->first <= offset);
    starts_word = (letter_case == LetterCase::kTitle && !IsCased(character)) ||
                  (letter_case == LetterCase::kJinjaTitle && BeginsWord(step.character));
    offset += step.length;
  }
  return result;
}

}  // namespace nightshift
