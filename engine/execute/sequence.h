// Sequence: a request while the engine holds it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/memory/kv_cache.h"
#include "engine/memory/prefix_tree.h"
#include "engine/sampling/completion.h"
#include "engine/sampling/logit_adjuster.h"
#include "engine/sampling/sampling_params.h"

namespace nightshift {

struct Sequence {
  // `prompt_ids` is not empty; `end_tokens` as in LogitAdjuster.
  Sequence(uint64_t request_id, SamplingParams params, Completion rules,
           std::vector<int32_t> prompt_ids, std::vector<int32_t> end_tokens, KvCache& cache)
      : id(request_id),
        sampling(std::move(params)),
        completion(std::move(rules)),
        adjuster(sampling, std::move(end_tokens), prompt_ids),
        tokens(std::move(prompt_ids)),
        prompt_tokens(static_cast<int64_t>(tokens.size())),
        pages(cache) {}
  Sequence(const Sequence&) = delete;  // parts of it refer to each other
  Sequence& operator=(const Sequence&) = delete;

  int64_t known_tokens() const { return static_cast<int64_t>(tokens.size()); }
  // Of those. Where the prompt is only scored nobody asks what follows its last token.
  int64_t tokens_to_compute() const {
    const bool only_scores = sampling.max_output_tokens == 0;
    return std::max<int64_t>(1, known_tokens() - (only_scores ? 1 : 0));
  }

  // The first position that decoding computes, or would compute if what is scored were generated.
  int64_t first_decoded() const {
    return sampling.scored_from > 0 ? sampling.scored_from : prompt_tokens;
  }

  uint64_t id;
  SamplingParams sampling;
  Completion completion;
  LogitAdjuster adjuster;
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int64_t prompt_tokens;
  int64_t computed_tokens = 0;         // whose keys and values are in `pages`
  int64_t shared_tokens = 0;           // of these, taken from others
  std::vector<TokenLogprob> logprobs;  // of the generated tokens
  // Of the prompt from sampling.scored_from on as far as it is computed; the prompt's first has
  // none. Empty when not wanted.
  std::vector<TokenLogprob> prompt_logprobs;
  PageTable pages;
  // All of it is computed in one sweep, whose pages nothing reads later: one layer is enough.
  bool is_whole = false;
  PrefixTree::Path prefix;        // what others may have in common with it; empty: nothing
  bool waits_for_prefix = false;  // at this sweep edge, for pages that an older one computes
};

}  // namespace nightshift
