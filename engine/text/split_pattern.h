// SplitPattern: a pre-tokenizer's regular expression, run by PCRE2 with the meaning that Hugging
// Face's engine (Oniguruma) gives it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// PCRE2's own types, so that pcre2.h stays in the source file.
struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace nightshift {

// Immutable after Create; Split is thread-safe. Runs compiled (JIT) where the machine allows, else
// interpreted with the same result.
class SplitPattern {
 public:
  // Accepts what published tokenizers use and both engines read alike: literals, | and groups
  // (?: (?i: (?= (?! (?<= (?<!, quantifiers, classes with ranges, \p{Category} \P{..} \s \S \d \r
  // \n \t and escaped punctuation. `\s` is Unicode White_Space, which differs from PCRE2's. Errors:
  // INVALID_ARGUMENT with the offset of what is not accepted.
  static absl::StatusOr<SplitPattern> Create(const std::string& pattern);

  // Appends the non-empty pieces of `text` (valid UTF-8) in order: each match, and each stretch
  // between matches. Errors: INVALID_ARGUMENT if matching exceeds its limits, with the offset.
  absl::Status Split(absl::string_view text, std::vector<absl::string_view>& pieces) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct ContextDeleter {
    void operator()(pcre2_real_match_context_8* context) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, CodeDeleter>;
  using Context = std::unique_ptr<pcre2_real_match_context_8, ContextDeleter>;

  SplitPattern(std::string pattern, Code code, Context context);

  std::string pattern_;
  Code code_;
  Context context_;
};

}  // namespace nightshift
