// A request's options: the row's own, else the job's, else the server's defaults. Pure.
#pragma once

#include <cstdint>

#include "engine/sampling/sampling_params.h"
#include "engine/text/prompt_encoder.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

inline constexpr int64_t kDefaultMaxOutputTokens = 256;

// Values are in range (CheckSampling). A list that the row gives replaces the job's. The noise of
// the request is keyed by its index, so that its text does not depend on its neighbours.
SamplingParams ResolveSampling(const v1::SamplingOptions& job, const v1::SamplingOptions& row,
                               int64_t index);

// Template arguments of the row are laid over the job's, one by one.
EncodeOptions ResolvePromptOptions(const v1::PromptOptions& job, const v1::PromptOptions& row);

// Messages as templates take them: [{"role", "content", "name"?}].
nlohmann::ordered_json MessagesToJson(const v1::Chat& chat);

}  // namespace nightshift
