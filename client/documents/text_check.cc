#include "client/documents/text_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

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
      absl::StrAppendFormat(&readable, "\\x%02X", static_cast<unsigned char>(name[0]));
      name.remove_prefix(1);
    }
  }
  return readable;
}

}  // namespace nightshift
