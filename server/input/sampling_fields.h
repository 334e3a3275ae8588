// The sampling fields of a JSON row as SamplingOptions.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/status.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Where a row's fields come from decides how it spells them: `logprobs` is a bool in chat
// completions, a number in completions, either in the plain form.
enum class RowKind { kPlain, kChat, kCompletion };

// Reads max_tokens, max_completion_tokens, temperature, top_p, top_k, seed, stop, stop_token_ids,
// logprobs and top_logprobs from `body`; null is absent.
// Errors: INVALID_ARGUMENT naming the field as the row spells it.
absl::Status ReadSampling(const nlohmann::json& body, RowKind kind, v1::SamplingOptions& sampling);

}  // namespace nightshift
