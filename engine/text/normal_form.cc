#include "engine/text/normal_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <utf8proc.h>

#include "engine/text/utf8.h"
#include "kernels/base/check.h"

namespace nightshift {
namespace {

// No character below this one combines or is changed by normal form C.
constexpr char32_t kFirstThatMatters = 0x300;
// The longest canonical decomposition has 4 characters (Unicode stability policy).
constexpr size_t kMaxDecomposition = 8;

bool IsUnchanged(absl::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    if (step.character >= kFirstThatMatters) return false;
    offset += step.length;
  }
  return true;
}

std::vector<int32_t> Decompose(absl::string_view text) {
  std::vector<int32_t> characters;
  characters.reserve(text.size());
  std::array<int32_t, kMaxDecomposition> parts{};
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    offset += step.length;
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<int32_t>(step.character), parts.data(), parts.size(),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
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

}  // namespace

std::string NormalizeNfc(absl::string_view text) {
  if (IsUnchanged(text)) return std::string(text);
  std::vector<int32_t> characters = Decompose(text);
  Order(characters);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(count >= 0);
  std::string normalized;
  normalized.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendCharacter(static_cast<char32_t>(characters[static_cast<size_t>(i)]), normalized);
  }
  return normalized;
}

}  // namespace nightshift
