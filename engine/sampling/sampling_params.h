// What a caller may ask of sampling, and what comes back for each token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace nightshift {

enum class FinishReason : uint8_t { kNone, kStop, kLength };

struct SamplingParams {
  int64_t max_output_tokens = 16;  // >= 1; clipped to the context by the engine
  float temperature = 1.0F;        // 0: greedy
  float top_p = 1.0F;              // (0, 1]
  int32_t top_k = 0;               // 0: off
  // Noise is keyed by (seed, request_key, position, token): the same text on every run.
  uint64_t seed = 0;
  uint64_t request_key = 0;          // the request's index in its job
  std::vector<std::string> stop;     // stop strings, searched in text, not in tokens
  std::vector<int32_t> stop_tokens;  // beside the model's own end tokens
  int32_t top_logprobs = 0;          // how many alternatives to report; 0..20
  bool want_logprobs = false;

  // INVALID_ARGUMENT naming the field, its value and its range; NaN and infinity included.
  absl::Status Validate() const;
};

struct TopLogprob {
  int32_t token = 0;
  float logprob = 0.0F;
};

// A sampled token; logprob is of the model's own distribution (temperature 1, nothing cut).
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0F;
  std::vector<TopLogprob> top;
};

}  // namespace nightshift
