// The ranges of sampling options and native requests: one place, whatever form they came in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/input/parse_limits.h"
#include "server/input/rpc_error.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

inline constexpr int64_t kMaxOutputTokens = 1 << 20;
inline constexpr int64_t kMaxStopStrings = 16;
inline constexpr int64_t kMaxStopBytes = 1024;
inline constexpr int64_t kMaxStopTokens = 64;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxLogitBiases = 1024;
inline constexpr int64_t kMaxBadWords = 256;
inline constexpr int64_t kMaxBadWordBytes = 1024;
inline constexpr int64_t kMaxBadWordTokens = 64;

// Every option that is set and out of its range, NaN and infinity included; fields are named
// relative to SamplingOptions ("top_p", "stop[3]").
std::vector<FieldViolation> CheckSampling(const v1::SamplingOptions& sampling,
                                          const ParseLimits& limits);

// Whether prompt_logprobs and echo fit each other, the input and max_output_tokens; params named as
// in JSON rows. Errors: INVALID_ARGUMENT.
absl::Status CheckPromptReports(const v1::InferenceRequest& request);

// Whether so many choices can be scored. Errors: INVALID_ARGUMENT.
absl::Status CheckNumChoices(int64_t count, const ParseLimits& limits);

// OK when the request can run as far as its own fields tell (its length in tokens is not known).
// Errors: INVALID_ARGUMENT FIELD_INVALID, FIELD_OUT_OF_RANGE, INPUT_MALFORMED (text that is not
// UTF-8) or PROMPT_TOO_LONG, with the field in metadata "param".
absl::Status CheckRequest(const v1::InferenceRequest& request, const ParseLimits& limits);

// What the template arguments are refused for, or "".
std::string CheckPromptOptions(const v1::PromptOptions& options);

// True for system, user and assistant.
bool IsChatRole(absl::string_view role);

// The message for a role that is not one of those.
std::string WrongRole(absl::string_view role);

}  // namespace nightshift
