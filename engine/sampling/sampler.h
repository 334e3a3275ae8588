// Sampler: from what the output head kept of a row to the sampled token. Pure.
//
// A token is drawn by the Gumbel-max rule: the winner of logit / temperature + noise, where the
// noise is a pure function of (seed, request, position, token). Cutting the vocabulary (top-k, then
// top-p) takes the winner among what is left. So a draw needs no random state and no full row of
// probabilities, and is the same in every block, order and run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/sampling_params.h"
#include "kernels/ops.h"

namespace nightshift {

// What the head must keep of a row to sample the token at `position` of the request's sequence.
HeadRequest MakeHeadRequest(const SamplingParams& params, int64_t position);

// A state before the first vocabulary shard.
HeadState InitialHeadState();

// False when the row's logits overflowed (weights that no sane model has): nothing can be sampled.
bool HasFiniteLogits(const HeadState& state);

// The sampled token with its log-probability under the model's own distribution (temperature 1,
// nothing cut) and the `top_logprobs` best alternatives, best first.
// Nothing when top-k or top-p need more than the kept candidates: then put all tokens in
// state.candidates (SortedCandidates) and ask again.
// `state` has seen the whole vocabulary and HasFiniteLogits. Cut: temperature, then top-k, then the
// shortest prefix of what is left whose renormalised probability reaches top-p. Equal logits: the
// lower token first.
std::optional<TokenLogprob> Sample(const SamplingParams& params, const HeadRequest& request,
                                   const HeadState& state, int64_t vocabulary);

// All tokens of a row of logits, best first; equal logits: the lower token first; NaN last.
std::vector<Candidate> SortedCandidates(std::span<const float> logits);

}  // namespace nightshift
