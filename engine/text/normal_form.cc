#include "engine/text/normal_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <utf8proc.h>

#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// The longest decomposition has 18 characters (U+FDFA, UnicodeData.txt); canonical ones have 4.
constexpr size_t kMaxDecomposition = 32;

// No character below this one combines or is changed by the form.
char32_t FirstThatMatters(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return 0x300;
    case NormalForm::kNfd:
      return 0xC0;
    case NormalForm::kNfkc:
    case NormalForm::kNfkd:
      break;
  }
  return 0xA0;
}

bool IsUnchanged(absl::string_view text, NormalForm form) {
  const char32_t first = FirstThatMatters(form);
  for (size_t offset = 0; offset < text.size();) {
    if (static_cast<unsigned char>(text[offset]) < 0x80) {
      ++offset;
      continue;
    }
    const Utf8Step step = NextCharacter(text, offset);
    if (step.character >= first) return false;
    offset += step.length;
  }
  return true;
}

struct CharacterRange {
  char32_t first;
  char32_t last;
};

// Decompositions that came after Unicode 12.0, where the tables of Hugging Face end: these
// characters stay as they are. Compared with the tokenizers package on every code point.
constexpr std::array<CharacterRange, 9> kNotDecomposed = {{
    {0x32FF, 0x32FF},
    {0xA7F2, 0xA7F4},
    {0xAB69, 0xAB69},
    {0x10781, 0x10785},
    {0x10787, 0x107B0},
    {0x107B2, 0x107BA},
    {0x11938, 0x11938},
    {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9},
}};

bool IsDecomposed(char32_t character) {
  return std::none_of(kNotDecomposed.begin(), kNotDecomposed.end(), [&](const CharacterRange& r) {
    return character >= r.first && character <= r.last;
  });
}

std::vector<int32_t> Decompose(absl::string_view text, bool compatibility) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
  std::vector<int32_t> characters;
  characters.reserve(text.size());
  std::array<int32_t, kMaxDecomposition> parts{};
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    offset += step.length;
    if (!IsDecomposed(step.character)) {
      characters.push_back(static_cast<int32_t>(step.character));
      continue;
    }
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<int32_t>(step.character), parts.data(), parts.size(),
                                static_cast<utf8proc_option_t>(options), &boundary);
    CHECK(count >= 0 && static_cast<size_t>(count) <= parts.size());
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  return characters;
}

utf8proc_propval_t CombiningClass(int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Canonical ordering: each run of combining marks sorted by class. utf8proc_decompose does this by
// insertion, which takes quadratic time on a long run.
void Order(std::vector<int32_t>& characters) {
  auto first = characters.begin();
  while (first != characters.end()) {
    if (CombiningClass(*first) == 0) {
      ++first;
      continue;
    }
    const auto last =
        std::find_if(first, characters.end(), [](int32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(first, last,
                     [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    first = last;
  }
}

// Where the ASCII stretch that begins at `offset` ends.
size_t SkipAscii(absl::string_view text, size_t offset) {
  while (offset < text.size() && static_cast<unsigned char>(text[offset]) < 0x80)
    ++offset;
  return offset;
}

size_t SkipNonAscii(absl::string_view text, size_t offset) {
  while (offset < text.size() && static_cast<unsigned char>(text[offset]) >= 0x80)
    ++offset;
  return offset;
}

// Appends the normal form of `text`.
void NormalizeStretch(absl::string_view text, NormalForm form, std::string& normalized) {
  std::vector<int32_t> characters =
      Decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd);
  Order(characters);
  auto count = static_cast<utf8proc_ssize_t>(characters.size());
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    count = utf8proc_normalize_utf32(
        characters.data(), count,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    CHECK(count >= 0);
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendCharacter(static_cast<char32_t>(characters[static_cast<size_t>(i)]), normalized);
  }
}

}  // namespace

// ASCII stays as it is, and of an ASCII stretch only the last character can compose, with what
// follows.
std::string Normalize(absl::string_view text, NormalForm form) {
  if (IsUnchanged(text, form)) return std::string(text);
  std::string normalized;
  normalized.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t ascii_end = SkipAscii(text, offset);
    const size_t end = SkipNonAscii(text, ascii_end);
    const size_t base = end > ascii_end && ascii_end > offset ? ascii_end - 1 : ascii_end;
    normalized.append(text.data() + offset, base - offset);
    if (end > ascii_end) NormalizeStretch(text.substr(base, end - base), form, normalized);
    offset = end;
  }
  return normalized;
}

}  // namespace nightshift
