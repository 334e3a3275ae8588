// A request's options: the row's own, else the job's, else the server's defaults. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "absl/status/statusor.h"

#include "engine/sampling/sampling_params.h"
#include "engine/text/prompt_encoder.h"
#include "engine/text/tokenizer.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

inline constexpr int64_t kDefaultMaxOutputTokens = 256;

// The row's options over the job's; a list or map that the row gives replaces the job's.
v1::SamplingOptions MergeSampling(const v1::SamplingOptions& job, const v1::SamplingOptions& row);

// What the engine is asked; bad words that are text are left out (EncodeBadWords). Values are in
// range (CheckSampling). The noise of the request is keyed by its index, so that its text does not
// depend on its neighbours.
SamplingParams ResolveSampling(const v1::SamplingOptions& options, int64_t index);

// How many alternatives the log-probabilities of the row's prompt have; nothing when they are not
// wanted. `options` are merged.
std::optional<int32_t> ResolvePromptLogprobs(const v1::SamplingOptions& options,
                                             const v1::InferenceRequest& row);

// The token sequences of the bad words that are text: without the spaces it begins with, and with
// one space before it. Errors: INVALID_ARGUMENT without a tokenizer (null), naming the word.
absl::StatusOr<std::vector<std::vector<int32_t>>> EncodeBadWords(const v1::SamplingOptions& options,
                                                                 const Tokenizer* tokenizer);

// Template arguments of the row are laid over the job's, one by one. The time of a job is that of
// its creation, so that its prompts are the same after a restart.
// Errors: INVALID_ARGUMENT for template arguments that acceptance would not have let through.
absl::StatusOr<EncodeOptions> ResolvePromptOptions(const v1::PromptOptions& job,
                                                   const v1::PromptOptions& row,
                                                   int64_t create_time_us);

// Messages as templates take them: [{"role", "content", "name"?}].
nlohmann::ordered_json MessagesToJson(const v1::Chat& chat);

}  // namespace nightshift
