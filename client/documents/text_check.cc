#include "client/documents/text_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace nightshift {
namespace {

unsigned char ByteAt(absl::string_view text, size_t offset) {
  return static_cast<unsigned char>(text[offset]);
}

// The length of the character at `offset`, 0 for none (Unicode standard, table 3-7).
size_t CharacterLength(absl::string_view text, size_t offset) {
  const unsigned char first = ByteAt(text, offset);
  if (first < 0x80) {
    return 1;
  }
  const size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  if (length == 0 || offset + length > text.size()) {
    return 0;
  }
  const unsigned char second = ByteAt(text, offset + 1);
  const unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (second < least || second > most) {
    return 0;
  }
  for (size_t i = 2; i < length; ++i) {
    if ((ByteAt(text, offset + i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  return length;
}

// The encoding that the first bytes tell, if it is not UTF-8.
const char* OtherEncoding(absl::string_view text) {
  constexpr std::pair<absl::string_view, const char*> kMarks[] = {
      {{"\xFF\xFE\0\0", 4}, "UTF-32"},
      {{"\0\0\xFE\xFF", 4}, "UTF-32"},
      {{"\xFF\xFE", 2}, "UTF-16"},
      {{"\xFE\xFF", 2}, "UTF-16"}};
  for (const auto& [mark, name] : kMarks) {
    if (absl::StartsWith(text, mark)) {
      return name;
    }
  }
  return nullptr;
}

}  // namespace

size_t FindInvalidUtf8(absl::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const size_t length = CharacterLength(text, offset);
    if (length == 0) {
      return offset;
    }
    offset += length;
  }
  return absl::string_view::npos;
}

std::optional<DocumentError> CleanText(absl::string_view what, std::string& text) {
  constexpr absl::string_view kMark = "\xEF\xBB\xBF";
  if (const char* encoding = OtherEncoding(text); encoding != nullptr) {
    return DocumentError{document_code::kNotText,
                         absl::StrCat(what, ": is ", encoding, "; make it UTF-8")};
  }
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    return DocumentError{document_code::kNotText,
                         absl::StrCat(what, ": has a NUL at byte ", nul, ", so it is no text")};
  }
  if (const size_t invalid = FindInvalidUtf8(text); invalid != absl::string_view::npos) {
    return DocumentError{document_code::kNotText,
                         absl::StrCat(what, ": is not UTF-8 at byte ", invalid, "; make it UTF-8")};
  }
  if (absl::StartsWith(text, kMark)) {
    text.erase(0, kMark.size());
  }
  return std::nullopt;
}

std::string ReadableName(absl::string_view name) {
  std::string readable;
  while (!name.empty()) {
    const size_t invalid = std::min(FindInvalidUtf8(name), name.size());
    absl::StrAppend(&readable, name.substr(0, invalid));
    name.remove_prefix(invalid);
    if (!name.empty()) {
      absl::StrAppendFormat(&readable, "\\x%02X", ByteAt(name, 0));
      name.remove_prefix(1);
    }
  }
  return readable;
}

}  // namespace nightshift
