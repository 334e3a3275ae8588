// Sampler: from what the output head kept of a row to the sampled token. Pure.
//
// A token is drawn by the Gumbel-max rule: the winner of logit / temperature + noise, where the
// noise is a pure function of (seed, request, choice, position, token). Cutting the vocabulary
// (min-p, then top-k, then top-p) takes the winner among what is left. So a draw needs no random
// state and no full row of probabilities, and is the same in every block, order and run.
//
// Draws look at adjusted logits (LogitAdjuster), reports at the model's own: a row with adjustments
// takes two requests to the head, any other row one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/sampling_params.h"
#include "kernels/ops.h"

namespace nightshift {

// What the head must keep of a row to draw the token at `position` of the request's sequence, and
// to report it when nothing is adjusted. Row and adjustments are the caller's to set.
HeadRequest MakeDrawRequest(const SamplingParams& params, int64_t position);

// What the head must keep of a row to report a token with `num_top` alternatives.
HeadRequest MakeReportRequest(int32_t num_top);

// A state before the first vocabulary shard.
HeadState InitialHeadState();

// False when the row's own logits overflowed (weights that no sane model has): nothing can be
// sampled. `state` is of a request without adjustments that change anything.
bool HasFiniteLogits(const HeadState& state);

// The drawn token with its adjusted logit. Nothing when the cuts need more than the kept
// candidates: then put all tokens in state.candidates (SortedCandidates) and ask again.
// `state` has seen the whole vocabulary and has a candidate. Cut: temperature; tokens below min_p
// times the best token's probability; top-k; the shortest prefix of what is left whose renormalised
// probability reaches top-p. Equal logits: the lower token first.
std::optional<Candidate> Draw(const SamplingParams& params, const HeadRequest& request,
                              const HeadState& state, int64_t vocabulary);

// The logit of a token before its adjustment. `logit` is the one behind it, in the same request.
float UnadjustedLogit(int32_t token, float logit, const HeadRequest& request,
                      const HeadState& state);

// A token and the `num_top` best ones with their log-probabilities, best first, under the
// distribution of `state`; `logit` is the token's in it.
TokenLogprob Report(int32_t token, float logit, const HeadState& state, int32_t num_top);

// All tokens of a row of logits, best first; equal logits: the lower token first; NaN last.
std::vector<Candidate> SortedCandidates(std::span<const float> logits);

}  // namespace nightshift
