// Completion: the text of one request as its tokens come, and the rules that end it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/sampling_params.h"
#include "engine/text/tokenizer.h"

namespace nightshift {

// What ends a completion, in the order in which it is looked at for each token.
struct StopRules {
  std::vector<int32_t> stop_tokens;       // asked by the caller
  std::vector<int32_t> model_end_tokens;  // the model's own
  std::vector<std::string> stop_strings;
  int64_t max_output_tokens = 0;  // already clipped to the context
  // Before so many tokens nothing ends but by length; a stop string ends behind them.
  int64_t min_output_tokens = 0;
};

// How a completion ended, as published: text, tokens and logprobs are cut at the same place.
struct Ending {
  FinishReason reason = FinishReason::kNone;
  std::string stop_reason;  // the stop string, or the caller's stop token in decimal; else empty
  std::string text;         // valid UTF-8, cut exactly where a stop string begins
  int64_t kept_tokens = 0;  // tokens that lie wholly in the text; an end token is not kept
};

// Collects generated tokens. A stop string is searched in the text, so it may begin and end
// anywhere in tokens; the first in the text wins, and of those that begin together the first
// listed. The state is a pure function of the tokens appended: appending them again rebuilds it.
class Completion {
 public:
  // `tokenizer` may be null (token ids only: no text, no stop strings) and must outlive this.
  Completion(const Tokenizer* tokenizer, StopRules rules);

  // Takes the next generated token; the ending if it is the last one. Not to be called after that.
  std::optional<Ending> Append(int32_t token);

 private:
  // Where the text of a token ends.
  struct TokenEnd {
    size_t text_bytes = 0;     // of the text when the token had been appended
    bool has_pending = false;  // some of its bytes (or its predecessor's) were held back
  };
  struct StopMatch {
    size_t position = 0;
    size_t stop_index = 0;
  };

  void AppendText(int32_t token);
  std::optional<StopMatch> FindStop(size_t searched_bytes) const;
  Ending EndAtStopString(const StopMatch& match) const;
  Ending EndWithWholeText(FinishReason reason, int64_t kept_tokens);

  StopRules rules_;
  size_t longest_stop_ = 0;
  std::optional<TextAccumulator> text_;
  std::vector<TokenEnd> ends_;
};

}  // namespace nightshift
