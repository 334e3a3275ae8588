// Bodies of results as the store keeps them: serialised nightshift.v1.Result without seq.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "engine/sampling/sampling_params.h"
#include "engine/text/tokenizer.h"

#include "google/rpc/status.pb.h"
#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// What every result tells of its request.
struct ResultHeader {
  int64_t index = 0;  // row in the job
  int64_t line = 0;   // 1-based, 0 for no lines
  std::string custom_id;
  v1::RequestForm form = v1::REQUEST_FORM_UNSPECIFIED;
  std::string metadata = "";  // a JSON object, or nothing
};

// One completion of a request.
struct ChoiceOutcome {
  std::string text;                // valid UTF-8
  std::vector<TokenLogprob> kept;  // tokens of the completion, trimmed with the text
  // Reported behind the kept ones: with echo every sampled token is, as programs expect that score
  // prompts by it.
  std::optional<TokenLogprob> end_token;
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_reason;
};

// How likely a continuation of a request is behind its prompt.
struct ScoredChoice {
  std::string text;                // valid UTF-8
  std::vector<TokenLogprob> kept;  // its tokens
};

struct CompletionOutcome {
  std::vector<ChoiceOutcome> choices;  // not empty, unless some are scored
  std::vector<ScoredChoice> scored;    // in place of completions
  bool want_logprobs = false;
  std::vector<TokenLogprob> prompt_logprobs;  // empty unless wanted
  std::optional<std::string> echoed_prompt;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt: taken from other requests, not computed
  int64_t output_tokens = 0;  // sampled, the end tokens included, of all choices
  uint64_t seed = 0;
  int32_t attempt = 1;
  std::string model_digest;
  std::string numeric_mode;
  std::string model;
};

// `tokenizer` gives the bytes of tokens in logprobs; nullptr leaves them empty.
std::string BuildCompletionResult(const ResultHeader& header, const CompletionOutcome& outcome,
                                  const Tokenizer* tokenizer);

// `error` is not OK; its details are kept as ToRpcStatus does.
std::string BuildErrorResult(const ResultHeader& header, const absl::Status& error);
std::string BuildErrorResult(const ResultHeader& header, const google::rpc::Status& error);

}  // namespace nightshift
