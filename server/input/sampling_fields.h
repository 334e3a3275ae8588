// The sampling fields of a JSON row as SamplingOptions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"

#include "server/input/parse_limits.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Where a row's fields come from decides how it spells them: `logprobs` is a bool in chat
// completions, a number in completions, either in the plain form.
enum class RowKind { kPlain, kChat, kCompletion };

// Reads the fields of SamplingOptions from `body`, by the names that OpenAI and vLLM give them;
// null is absent. Errors: INVALID_ARGUMENT naming the field as the row spells it.
absl::Status ReadSampling(const nlohmann::json& body, RowKind kind, const ParseLimits& limits,
                          v1::SamplingOptions& sampling);

// Reads echo (completions and the plain form) and prompt_logprobs (the plain form). Errors: as
// ReadSampling.
absl::Status ReadPromptReports(const nlohmann::json& body, RowKind kind,
                               v1::InferenceRequest& request);

}  // namespace nightshift
