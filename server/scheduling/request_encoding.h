// A request's prompt as the model's tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/scheduling/model_text.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// The tokens of prompt or chat, with `continuation` behind it. `job_options` and `create_time_us`
// are the job's, as ResolvePromptOptions takes them. Errors: PromptEncoder's; CannotEncode makes
// them a row's.
absl::StatusOr<std::vector<int32_t>> EncodeRequest(const v1::InferenceRequest& request,
                                                   const v1::PromptOptions& job_options,
                                                   int64_t create_time_us, const ModelText& text,
                                                   const std::string& continuation = "");

// `error` of EncodeRequest as a row's error. What can go wrong with messages that were checked is
// their template: it refuses them, or runs into its limits. A pack without one is
// FAILED_PRECONDITION.
absl::Status CannotEncode(const v1::InferenceRequest& request, const absl::Status& error);

}  // namespace nightshift
