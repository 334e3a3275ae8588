#include "engine/text/jinja/text_operations.h"

#include <algorithm>
#include <cstring>

#include <utf8proc.h>

#include "absl/status/status.h"

#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

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

}  // namespace

bool IsPythonSpace(char32_t character) {
  return IsUnicodeSpace(character) || (character >= 0x1C && character <= 0x1F);
}

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
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
    const bool upper =
        letter_case == LetterCase::kUpper || (letter_case != LetterCase::kLower && starts_word);
    changed.clear();
    AppendCharacter(static_cast<char32_t>(upper ? Upper(character) : Lower(character)), changed);
    while (trusted != text.trusted().end() && trusted->first + trusted->length <= offset) {
      ++trusted;
    }
    result.Append(changed, trusted != text.trusted().end() && trusted->first <= offset);
    starts_word = letter_case == LetterCase::kTitle && !IsCased(character);
    offset += step.length;
  }
  return result;
}

}  // namespace nightshift
