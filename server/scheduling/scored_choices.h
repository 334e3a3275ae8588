// Rows whose choices are scored: what is common to them and what each adds, and what the engine is
// asked about them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/sampling/sampling_params.h"
#include "engine/text/tokenizer.h"
#include "server/scheduling/model_text.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// One choice: its text as results tell it, and its tokens behind the row's prompt.
struct ScoredContinuation {
  std::string text;
  std::vector<int32_t> tokens;
};

// Of all choices together.
int64_t ScoredTokens(const std::vector<ScoredContinuation>& choices);

// Scores a prompt's tokens and generates nothing; scored_from is the caller's to set. Options are
// merged; of them only the log-probabilities count.
SamplingParams ScoringParams(const v1::SamplingOptions& options, int64_t index);

struct CommonPrompt {
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> rests;  // one a choice, none empty
};

// Splits what was encoded with each choice behind the prompt from where it is not the same in the
// prompt alone and all of them. Errors: INVALID_ARGUMENT (RowError) for a choice that adds no token
// and for choices that leave nothing in common, so that there is nothing to score them behind.
absl::StatusOr<CommonPrompt> SplitChoices(std::vector<int32_t> prompt,
                                          std::vector<std::vector<int32_t>> whole);

// The tokens of a choice behind a prompt of token ids. Errors: INVALID_ARGUMENT (RowError) for a
// model without tokenizer.
absl::StatusOr<std::vector<int32_t>> EncodeAlone(const std::string& choice, const ModelText& text);

// As it was given, or what its tokens stand for.
std::string TextOfChoice(const v1::Continuation& choice, const Tokenizer* tokenizer);

}  // namespace nightshift
