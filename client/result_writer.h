// Results as JSON lines, in the form in which their requests came in. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// What a line says about its job. Nothing in a line depends on when it is written: a result that is
// fetched again gives the same bytes.
struct ResultLineOptions {
  std::string job_uid;             // makes the ids of OpenAI lines unique
  int64_t create_time_s = 0;       // `created` of OpenAI lines: when the job was accepted
  bool include_token_ids = false;  // plain form only; a result without text has them always
};

ResultLineOptions ResultLineOptionsOf(const v1::Job& job);

// One line of JSON with its newline; always valid JSON in UTF-8, whatever the result holds.
//
// OpenAI forms, as their Batch output files, the body byte for byte as the types of their Python
// package write it: {"id", "custom_id", "response": {"status_code",
// "request_id", "body"}, "error": null}. A request that was refused has status_code 400 and a body
// {"error": {"code", "message", "param", "type"}}; one that the engine failed has 500; one that
// never ran has "response": null and "error": {"code", "message"} with code batch_cancelled,
// batch_expired or batch_failed. `stop_reason` in a choice is our extension. With echo the text and
// the legacy logprobs begin with the prompt, whose first token has null for its log-probability.
// Plain form (also native requests): {"id", "index", "text", "finish_reason", "stop_reason",
// "logprobs", "token_ids", "prompt_logprobs", "usage"}, for several choices {"id", "index",
// "choices": [{"index", "text", ...}], "prompt_logprobs", "usage"}, for choices that were scored
// {"id", "index", "choices": [{"index", "text", "logprob", "tokens", "probability", "logprobs",
// "token_ids"}], "best", "usage"}, or {"id", "index", "error": {"code", "message", "param"}}; parts
// that do not apply are left out.
std::string ResultLine(const v1::Result& result, const ResultLineOptions& options);

}  // namespace nightshift
