#include "server/input/result_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/check.h"
#include "server/input/parse_limits.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

// Of custom_id and stop_reason, whose own limits are lower.
constexpr int64_t kMaxStringBytes = 4096;

v1::Result MakeResult(const ResultHeader& header) {
  v1::Result result;
  result.set_index(header.index);
  result.set_line(header.line);
  // A string field that is not UTF-8 would make the stored record unreadable.
  result.set_custom_id(CleanText(header.custom_id, kMaxStringBytes));
  result.set_form(header.form);
  // Of a request that was refused for it, metadata may be anything.
  if (static_cast<int64_t>(header.metadata.size()) <= kMaxMetadataBytes) {
    result.set_metadata(header.metadata);
  }
  return result;
}

v1::FinishReason WireFinishReason(FinishReason finish_reason) {
  switch (finish_reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

std::string BytesOf(const Tokenizer* tokenizer, int32_t token) {
  return tokenizer == nullptr ? std::string() : std::string(tokenizer->TokenBytes(token));
}

void SetLogprob(const TokenLogprob& token, const Tokenizer* tokenizer, v1::TokenLogprob& added) {
  added.set_token(token.token);
  added.set_bytes(BytesOf(tokenizer, token.token));
  added.set_logprob(token.logprob);
  added.set_special(tokenizer != nullptr && tokenizer->IsSpecial(token.token));
  for (const TopLogprob& alternative : token.top) {
    v1::TopLogprob* top = added.add_top();
    top->set_token(alternative.token);
    top->set_bytes(BytesOf(tokenizer, alternative.token));
    top->set_logprob(alternative.logprob);
  }
}

// `Message` is v1::Completion, for the first choice, or v1::Choice.
template <typename Message>
void SetChoice(const ChoiceOutcome& choice, bool want_logprobs, const Tokenizer* tokenizer,
               Message& message) {
  message.set_text(choice.text);
  for (const TokenLogprob& token : choice.kept) {
    message.add_token_ids(token.token);
    if (want_logprobs) {
      SetLogprob(token, tokenizer, *message.add_logprobs());
    }
  }
  if (want_logprobs && choice.end_token.has_value()) {
    SetLogprob(*choice.end_token, tokenizer, *message.add_logprobs());
  }
  message.set_finish_reason(WireFinishReason(choice.finish_reason));
  message.set_stop_reason(CleanText(choice.stop_reason, kMaxStringBytes));
}

double SumOfLogprobs(const ScoredChoice& choice) {
  double sum = 0.0;
  for (const TokenLogprob& token : choice.kept) {
    sum += static_cast<double>(token.logprob);
  }
  return sum;
}

void SetScores(const std::vector<ScoredChoice>& scored, bool want_logprobs,
               const Tokenizer* tokenizer, v1::Completion& completion) {
  std::vector<double> sums;
  for (const ScoredChoice& choice : scored) {
    sums.push_back(SumOfLogprobs(choice));
  }
  const auto best = std::max_element(sums.begin(), sums.end());
  double total = 0.0;  // of likelihoods relative to the best one's
  for (const double sum : sums) {
    total += std::exp(sum - *best);
  }
  for (size_t i = 0; i < scored.size(); ++i) {
    v1::ChoiceScore& score = *completion.add_choice_scores();
    score.set_text(scored[i].text);
    for (const TokenLogprob& token : scored[i].kept) {
      score.add_token_ids(token.token);
      if (want_logprobs) {
        SetLogprob(token, tokenizer, *score.add_logprobs());
      }
    }
    score.set_logprob(sums[i]);
    score.set_probability(std::exp(sums[i] - *best) / total);
  }
  completion.set_best_choice(static_cast<int32_t>(best - sums.begin()));
}

}  // namespace

std::string BuildCompletionResult(const ResultHeader& header, const CompletionOutcome& outcome,
                                  const Tokenizer* tokenizer) {
  CHECK(outcome.choices.empty() != outcome.scored.empty());
  v1::Result result = MakeResult(header);
  v1::Completion& completion = *result.mutable_completion();
  if (outcome.choices.empty()) {
    SetScores(outcome.scored, outcome.want_logprobs, tokenizer, completion);
  } else {
    SetChoice(outcome.choices.front(), outcome.want_logprobs, tokenizer, completion);
  }
  for (size_t i = 1; i < outcome.choices.size(); ++i) {
    SetChoice(outcome.choices[i], outcome.want_logprobs, tokenizer,
              *completion.add_further_choices());
  }
  for (const TokenLogprob& token : outcome.prompt_logprobs) {
    SetLogprob(token, tokenizer, *completion.add_prompt_logprobs());
  }
  if (outcome.echoed_prompt.has_value()) {
    completion.set_echoed_prompt(*outcome.echoed_prompt);
  }
  completion.mutable_usage()->set_prompt_tokens(outcome.prompt_tokens);
  completion.mutable_usage()->set_output_tokens(outcome.output_tokens);
  completion.mutable_usage()->set_cached_tokens(outcome.cached_tokens);
  completion.set_seed(outcome.seed);
  completion.set_attempt(outcome.attempt);
  completion.set_model_digest(outcome.model_digest);
  completion.set_numeric_mode(outcome.numeric_mode);
  completion.set_model(outcome.model);
  return result.SerializeAsString();
}

std::string BuildErrorResult(const ResultHeader& header, const absl::Status& error) {
  return BuildErrorResult(header, ToRpcStatus(error));
}

std::string BuildErrorResult(const ResultHeader& header, const google::rpc::Status& error) {
  CHECK_NE(error.code(), 0);
  v1::Result result = MakeResult(header);
  *result.mutable_error() = error;
  return result.SerializeAsString();
}

}  // namespace nightshift
