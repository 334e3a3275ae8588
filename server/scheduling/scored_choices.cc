#include "server/scheduling/scored_choices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/prompt_encoder.h"
#include "server/input/row_error.h"
#include "server/scheduling/request_options.h"

namespace nightshift {

int64_t ScoredTokens(const std::vector<ScoredContinuation>& choices) {
  int64_t count = 0;
  for (const ScoredContinuation& choice : choices) {
    count += static_cast<int64_t>(choice.tokens.size());
  }
  return count;
}

SamplingParams ScoringParams(const v1::SamplingOptions& options, int64_t index) {
  SamplingParams sampling;
  sampling.max_output_tokens = 0;
  sampling.temperature = 0.0F;
  sampling.request_key = static_cast<uint64_t>(index);
  sampling.seed = options.seed();
  sampling.want_logprobs = options.logprobs();
  sampling.prompt_logprobs = options.logprobs() ? options.top_logprobs() : 0;
  return sampling;
}

absl::StatusOr<CommonPrompt> SplitChoices(std::vector<int32_t> prompt,
                                          std::vector<std::vector<int32_t>> whole) {
  size_t common = prompt.size();
  for (const std::vector<int32_t>& tokens : whole) {
    const auto [end, other] =
        std::mismatch(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(common),
                      tokens.begin(), tokens.end());
    common = static_cast<size_t>(end - prompt.begin());
  }
  if (common == 0) {
    return RowError(reason::kInputMalformed, row_code::kInvalidValue, "choices",
                    "the first token changes with the choice, and nothing comes before it; give a "
                    "longer prompt");
  }
  CommonPrompt split;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].size() == common) {
      return RowError(reason::kInputMalformed, row_code::kInvalidValue,
                      absl::StrCat("choices[", i, "]"), "adds no token to the prompt");
    }
    split.rests.emplace_back(whole[i].begin() + static_cast<std::ptrdiff_t>(common),
                             whole[i].end());
  }
  prompt.resize(common);
  split.prompt = std::move(prompt);
  return split;
}

absl::StatusOr<std::vector<int32_t>> EncodeAlone(const std::string& choice, const ModelText& text) {
  const Tokenizer* tokenizer = text.encoder->tokenizer();
  if (tokenizer == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "choices",
                    "texts need a tokenizer, which the model does not have; give token ids");
  }
  return tokenizer->Encode(choice, {});
}

std::string TextOfChoice(const v1::Continuation& choice, const Tokenizer* tokenizer) {
  if (!choice.has_tokens()) {
    return choice.text();
  }
  const auto& ids = choice.tokens().ids();
  return tokenizer == nullptr ? std::string()
                              : tokenizer->Decode({ids.begin(), ids.end()}, /*skip_special=*/false);
}

}  // namespace nightshift
