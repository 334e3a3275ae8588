// TokenStream: the tokens of a template, as its parsers consume them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/syntax.h"

namespace nightshift {

class TokenStream {
 public:
  explicit TokenStream(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  // `ahead` tokens after the current one; the last token, kEnd, repeats.
  const JinjaToken& Peek(size_t ahead = 0) const;
  JinjaToken Take();
  bool Is(JinjaToken::Kind kind) const { return Peek().kind == kind; }
  bool IsOperator(absl::string_view text, size_t ahead = 0) const;
  bool IsName(absl::string_view text, size_t ahead = 0) const;
  // Takes the current token if it is that operator, or that name.
  bool TakeOperator(absl::string_view text);
  bool TakeName(absl::string_view text);

  // How many tokens were taken.
  size_t position() const { return next_; }
  // Whether that name stands among the tokens taken since position() was `first`, as a variable
  // may: not behind a dot.
  bool HasNameSince(size_t first, absl::string_view text) const;

  // Errors: INVALID_ARGUMENT with the line, what was wanted and what is there.
  absl::Status Expect(JinjaToken::Kind kind, absl::string_view wanted);
  absl::Status ExpectOperator(absl::string_view text);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Refused(absl::string_view what) const;
  // "found X instead of `wanted`".
  absl::Status Unexpected(absl::string_view wanted) const;

  // The place from `start` to the last taken token.
  JinjaPlace PlaceFrom(const JinjaToken& start) const;

 private:
  std::vector<JinjaToken> tokens_;
  size_t next_ = 0;
};

}  // namespace nightshift
