// What a caller may ask of sampling, and what comes back for each token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace nightshift {

enum class FinishReason : uint8_t { kNone, kStop, kLength };

struct LogitBias {
  int32_t token = 0;
  float bias = 0.0F;  // -100..100
};

// How a token is drawn from the model's logits, in this order (as vLLM):
//   1. bans: the last token of a bad word whose other tokens were just generated; what ends a
//      completion, before min_output_tokens; 2. logit_bias is added; 3. repetition_penalty divides
//      positive logits and multiplies others, of tokens in prompt or output; 4. frequency_penalty
//      times the token's count in the output, and presence_penalty if that is not 0, are taken off;
//   5. temperature; 6. min_p; 7. top_k; 8. top_p, over what is left; 9. the draw.
// Greedy (temperature 0) takes the best logit after step 4.
struct SamplingParams {
  // Clipped to the context by the engine. >= 1, or 0 to score the prompt alone (prompt_logprobs).
  int64_t max_output_tokens = 16;
  int64_t min_output_tokens = 0;  // 0..max_output_tokens: no end token or stop string before
  float temperature = 1.0F;       // 0: greedy
  float top_p = 1.0F;             // (0, 1]
  int32_t top_k = 0;              // 0: off
  // 0..1: drops tokens less likely than min_p times the most likely one; 0: off
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;    // 0.01..100; 1: off
  float presence_penalty = 0.0F;      // -2..2
  float frequency_penalty = 0.0F;     // -2..2
  std::vector<LogitBias> logit_bias;  // at most 1024; of one token twice: their sum
  // At most 1024 sequences of 1 to 1024 ids that the output must not contain.
  std::vector<std::vector<int32_t>> bad_words;
  bool ignore_eos = false;  // the model's own end tokens end nothing
  // Noise is keyed by (seed, request_key, choice, position, token): the same text on every run.
  uint64_t seed = 0;
  uint64_t request_key = 0;          // the request's index in its job
  uint32_t choice = 0;               // which of several completions of one request
  std::vector<std::string> stop;     // stop strings, searched in text, not in tokens
  std::vector<int32_t> stop_tokens;  // beside the model's own end tokens
  int32_t top_logprobs = 0;          // how many alternatives to report; 0..20
  bool want_logprobs = false;
  // Log-probabilities of the prompt's tokens, with so many alternatives (0..20).
  std::optional<int32_t> prompt_logprobs;
  // The first of those tokens: what lies before it may be taken from other requests. 0: all.
  int64_t scored_from = 0;
  // With prompt_logprobs: tokens that are reported as well as if they stood in place of the
  // prompt's last one.
  std::vector<int32_t> last_token_rivals;

  // INVALID_ARGUMENT naming the field, its value and its range; NaN and infinity included.
  absl::Status Validate() const;
};

struct TopLogprob {
  int32_t token = 0;
  float logprob = 0.0F;
};

// A token of the output or the prompt; logprobs are of the model's own distribution: temperature 1,
// nothing cut, banned, biased or penalised (as OpenAI and vLLM).
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0F;
  std::vector<TopLogprob> top;
};

}  // namespace nightshift
