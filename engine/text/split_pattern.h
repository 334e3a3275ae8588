// SplitPattern: a pre-tokenizer's regular expression, run by PCRE2 with the meaning that Hugging
// Face's engine (Oniguruma) gives it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/text_range.h"

// PCRE2's own types, so that pcre2.h stays in the source file.
struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace nightshift {

// What the one character is that a pattern steps over.
enum class PatternAlphabet { kCharacters, kBytes };

// Immutable after Create, thread-safe. Runs compiled (JIT) where the machine allows, else
// interpreted with the same result.
class SplitPattern {
 public:
  // Accepts what published tokenizers use and both engines read alike: literals, | and groups
  // (?: (?i: (?= (?! (?<= (?<!, quantifiers, classes with ranges, \p{Category} \P{..} \s \S \d \r
  // \n \t and escaped punctuation. `\s` is Unicode White_Space, which differs from PCRE2's. Errors:
  // INVALID_ARGUMENT with the offset of what is not accepted.
  // Over bytes only ASCII and \xHH are accepted, and no negated class.
  static absl::StatusOr<SplitPattern> Create(
      const std::string& pattern, PatternAlphabet alphabet = PatternAlphabet::kCharacters);

  // Finds matches in one text after another; one a thread. `pattern` must outlive it.
  class Matcher {
   public:
    explicit Matcher(const SplitPattern& pattern);
    // Appends the non-empty matches in `text` (valid UTF-8, or any bytes) from left to right.
    // Errors: INVALID_ARGUMENT if matching exceeds its limits, with the offset.
    absl::Status Find(absl::string_view text, std::vector<TextRange>& matches);

   private:
    struct Deleter {
      void operator()(pcre2_real_match_data_8* data) const;
    };
    const SplitPattern& pattern_;
    std::unique_ptr<pcre2_real_match_data_8, Deleter> data_;
  };

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
