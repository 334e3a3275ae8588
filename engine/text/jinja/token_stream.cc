#include "engine/text/jinja/token_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaToken::Kind;

std::string Describe(const JinjaToken& token) {
  switch (token.kind) {
    case Kind::kData:
      return "text";
    case Kind::kBlockBegin:
      return "{%";
    case Kind::kBlockEnd:
      return "%}";
    case Kind::kVariableBegin:
      return "{{";
    case Kind::kVariableEnd:
      return "}}";
    case Kind::kString:
      return "a string";
    case Kind::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

}  // namespace

const JinjaToken& TokenStream::Peek(size_t ahead) const {
  return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
}

JinjaToken TokenStream::Take() {
  JinjaToken token = Peek();
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool TokenStream::IsOperator(absl::string_view text, size_t ahead) const {
  return Peek(ahead).kind == Kind::kOperator && Peek(ahead).text == text;
}

bool TokenStream::IsName(absl::string_view text, size_t ahead) const {
  return Peek(ahead).kind == Kind::kName && Peek(ahead).text == text;
}

bool TokenStream::TakeOperator(absl::string_view text) {
  if (!IsOperator(text)) return false;
  Take();
  return true;
}

bool TokenStream::TakeName(absl::string_view text) {
  if (!IsName(text)) return false;
  Take();
  return true;
}

bool TokenStream::HasNameSince(size_t first, absl::string_view text) const {
  for (size_t i = first; i < next_; ++i) {
    const bool behind_dot =
        i > 0 && tokens_[i - 1].kind == Kind::kOperator && tokens_[i - 1].text == ".";
    if (tokens_[i].kind == Kind::kName && tokens_[i].text == text && !behind_dot) return true;
  }
  return false;
}

absl::Status TokenStream::Expect(JinjaToken::Kind kind, absl::string_view wanted) {
  if (!Is(kind)) return Unexpected(wanted);
  Take();
  return absl::OkStatus();
}

absl::Status TokenStream::ExpectOperator(absl::string_view text) {
  return TakeOperator(text) ? absl::OkStatus() : Unexpected(absl::StrCat("'", text, "'"));
}

absl::StatusOr<std::string> TokenStream::ExpectName() {
  if (!Is(Kind::kName)) return Unexpected("a name");
  return Take().text;
}

absl::Status TokenStream::Refused(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("chat template line ", Peek().line, ": ", what));
}

absl::Status TokenStream::Unexpected(absl::string_view wanted) const {
  return Refused(absl::StrCat("found ", Describe(Peek()), ", want ", wanted));
}

JinjaPlace TokenStream::PlaceFrom(const JinjaToken& start) const {
  const size_t last = next_ == 0 ? start.last : tokens_[next_ - 1].last;
  return {.line = start.line, .first = start.first, .last = std::max(last, start.last)};
}

}  // namespace nightshift
