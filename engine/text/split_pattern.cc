#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/split_pattern.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <pcre2.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Longer than any published pattern (o200k has about 500 bytes).
constexpr size_t kMaxPatternBytes = 8192;
// Backtracking steps of one match. `\s*[\r\n]+` on n spaces takes n of them before it gives up, so
// this allows 64 MiB of spaces, and stops a pattern that explodes after about a second.
constexpr uint32_t kMatchLimit = 1u << 26;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;

// White_Space as members of a character class.
constexpr char kSpaceMembers[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

// Rewrites a pattern from Oniguruma's syntax to PCRE2's, refusing what it does not know.
class PatternTranslator {
 public:
  PatternTranslator(absl::string_view source, PatternAlphabet alphabet)
      : source_(source), alphabet_(alphabet) {}

  absl::StatusOr<std::string> Run() {
    while (offset_ < source_.size())
      RETURN_IF_ERROR(TranslateOne());
    return std::move(target_);
  }

 private:
  absl::Status TranslateOne() {
    const char c = source_[offset_];
    RETURN_IF_ERROR(CheckAlphabet());
    switch (c) {
      case '\\':
        return TranslateEscape(/*in_class=*/false);
      case '[':
        return TranslateClass();
      case '(':
        return TranslateGroup();
      case '{':
        return TranslateCount();
      case '.':
      case '^':
      case '$':
        return Refused(absl::string_view(&source_[offset_], 1));
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  // Of bytes only ASCII has a meaning that does not depend on what they stand for.
  absl::Status CheckAlphabet() const {
    if (alphabet_ == PatternAlphabet::kCharacters) return absl::OkStatus();
    const char c = source_[offset_];
    const bool is_negated = c == '[' && source_.substr(offset_ + 1, 1) == "^";
    if (absl::ascii_isascii(static_cast<unsigned char>(c)) && !is_negated) {
      return absl::OkStatus();
    }
    return Refused(absl::StrCat(source_.substr(offset_, 2), " over bytes"));
  }

  // \xHH
  absl::Status TranslateByteEscape() {
    const absl::string_view digits = source_.substr(std::min(offset_ + 2, source_.size()), 2);
    if (source_[offset_ + 1] != 'x' || digits.size() != 2 || !IsHex(digits[0]) ||
        !IsHex(digits[1])) {
      return Refused(absl::StrCat(source_.substr(offset_, 2), " over bytes"));
    }
    Copy(4);
    return absl::OkStatus();
  }

  static bool IsHex(char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }

  absl::Status TranslateGroup() {
    static constexpr std::array<absl::string_view, 6> kGroups = {
        "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};
    if (offset_ + 1 < source_.size() && source_[offset_ + 1] == '?') {
      for (const absl::string_view group : kGroups) {
        if (source_.substr(offset_, group.size()) == group) {
          Copy(group.size());
          return absl::OkStatus();
        }
      }
      return Refused(source_.substr(offset_, 4));
    }
    Copy(1);
    return absl::OkStatus();
  }

  // {m}, {m,}, {m,n}. What follows must not be a quantifier: Oniguruma reads {1,3}+ as a repeated
  // repetition, PCRE2 as a possessive one.
  absl::Status TranslateCount() {
    const size_t end = source_.find('}', offset_);
    if (end == absl::string_view::npos) return Refused("{");
    const absl::string_view count = source_.substr(offset_, end + 1 - offset_);
    for (const char c : count.substr(1, count.size() - 2)) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != ',') return Refused(count);
    }
    const absl::string_view next = source_.substr(end + 1, 1);
    if (next == "+" || next == "?" || next == "*" || next == "{") {
      return Refused(absl::StrCat(count, next));
    }
    Copy(count.size());
    return absl::OkStatus();
  }

  absl::Status TranslateClass() {
    Copy(1);
    if (source_.substr(offset_, 1) == "^") Copy(1);
    if (source_.substr(offset_, 1) == "]") return Refused("[]");
    while (offset_ < source_.size()) {
      const char c = source_[offset_];
      if (c == ']') {
        Copy(1);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(CheckAlphabet());
      if (c == '[') return Refused("[ inside a class");
      if (source_.substr(offset_, 2) == "&&") return Refused("&&");
      if (c == '\\') {
        RETURN_IF_ERROR(TranslateEscape(/*in_class=*/true));
      } else {
        Copy(1);
      }
    }
    return Refused("a class without ]");
  }

  absl::Status TranslateEscape(bool in_class) {
    if (offset_ + 1 == source_.size()) return Refused("\\");
    if (alphabet_ == PatternAlphabet::kBytes) return TranslateByteEscape();
    const char c = source_[offset_ + 1];
    if (c == 'p' || c == 'P') return TranslateProperty();
    if (c == 's' || (c == 'S' && !in_class)) {
      offset_ += 2;
      absl::StrAppend(&target_,
                      in_class   ? ""
                      : c == 's' ? "["
                                 : "[^",
                      kSpaceMembers, in_class ? "" : "]");
      return absl::OkStatus();
    }
    const bool known = c == 'd' || c == 'r' || c == 'n' || c == 't' ||
                       absl::ascii_ispunct(static_cast<unsigned char>(c));
    if (!known) return Refused(source_.substr(offset_, 2));
    Copy(2);
    return absl::OkStatus();
  }

  // Categories have one or two letters; longer names are scripts, which PCRE2 would read as script
  // extensions unless told otherwise.
  absl::Status TranslateProperty() {
    const size_t end = source_.find('}', offset_);
    if (source_.substr(offset_ + 2, 1) != "{" || end == absl::string_view::npos) {
      return Refused(source_.substr(offset_, 3));
    }
    const absl::string_view name = source_.substr(offset_ + 3, end - offset_ - 3);
    for (const char c : name) {
      if (!absl::ascii_isalpha(static_cast<unsigned char>(c))) {
        return Refused(source_.substr(offset_, end + 1 - offset_));
      }
    }
    absl::StrAppend(&target_, source_.substr(offset_, 3), name.size() > 2 ? "sc:" : "", name, "}");
    offset_ = end + 1;
    return absl::OkStatus();
  }

  void Copy(size_t bytes) {
    absl::StrAppend(&target_, source_.substr(offset_, bytes));
    offset_ += bytes;
  }

  absl::Status Refused(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("split pattern \"", source_, "\": ", what,
                                                   " at offset ", offset_, " is not supported"));
  }

  absl::string_view source_;
  PatternAlphabet alphabet_;
  size_t offset_ = 0;
  std::string target_;
};

std::string ErrorText(int code) {
  std::array<PCRE2_UCHAR, 128> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(text.data())), " (", code,
                      ")");
}

}  // namespace

void SplitPattern::CodeDeleter::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

void SplitPattern::ContextDeleter::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}

SplitPattern::SplitPattern(std::string pattern, Code code, Context context)
    : pattern_(std::move(pattern)), code_(std::move(code)), context_(std::move(context)) {}

absl::StatusOr<SplitPattern> SplitPattern::Create(const std::string& pattern,
                                                  PatternAlphabet alphabet) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("split pattern of ", pattern.size(), " bytes, want 1 to ", kMaxPatternBytes));
  }
  ASSIGN_OR_RETURN(const std::string translated, PatternTranslator(pattern, alphabet).Run());
  const uint32_t characters = alphabet == PatternAlphabet::kCharacters ? PCRE2_UTF | PCRE2_UCP : 0;
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          characters | PCRE2_NEVER_BACKSLASH_C, &error, &error_offset, nullptr));
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("split pattern \"", pattern, "\": ", ErrorText(error)));
  }
  // A machine without JIT answers with an error here and interprets the same code.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  Context context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  return SplitPattern(pattern, std::move(code), std::move(context));
}

void SplitPattern::Matcher::Deleter::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}

SplitPattern::Matcher::Matcher(const SplitPattern& pattern)
    : pattern_(pattern),
      data_(pcre2_match_data_create_from_pattern(pattern.code_.get(), nullptr)) {}

absl::Status SplitPattern::Matcher::Find(absl::string_view text, std::vector<TextRange>& matches) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t offset = 0;
  while (offset < text.size()) {
    const auto find = [&](uint32_t options) {
      return pcre2_match(pattern_.code_.get(), subject, text.size(), offset,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | options, data_.get(),
                         pattern_.context_.get());
    };
    int found = find(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = find(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return absl::InvalidArgumentError(absl::StrCat("splitting text at byte ", offset, " by \"",
                                                     pattern_.pattern_, "\": ", ErrorText(found)));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    matches.push_back({.first = bounds[0], .length = bounds[1] - bounds[0]});
    offset = bounds[1];
  }
  return absl::OkStatus();
}

}  // namespace nightshift
