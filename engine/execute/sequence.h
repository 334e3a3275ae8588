// Sequence: a request while the engine holds it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/memory/kv_cache.h"
#include "engine/sampling/completion.h"
#include "engine/sampling/sampling_params.h"

namespace nightshift {

struct Sequence {
  Sequence(uint64_t request_id, SamplingParams params, Completion rules, KvCache& cache)
      : id(request_id), sampling(std::move(params)), completion(std::move(rules)), pages(cache) {}

  int64_t known_tokens() const { return static_cast<int64_t>(tokens.size()); }

  uint64_t id;
  SamplingParams sampling;
  Completion completion;
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;         // whose keys and values are in `pages`
  std::vector<TokenLogprob> logprobs;  // of the generated tokens
  PageTable pages;
};

}  // namespace nightshift
