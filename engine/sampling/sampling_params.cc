#include "engine/sampling/sampling_params.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Below the smallest temperature logits / temperature leaves the range where f32 tells tokens
// apart.
constexpr float kMinTemperature = 1e-6F;
constexpr float kMaxTemperature = 100.0F;
constexpr int32_t kMaxTopLogprobs = 20;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 4096;
// With these bounds an adjusted logit of a sane model, divided by the smallest temperature, is
// finite.
constexpr float kMinRepetition = 0.01F;
constexpr float kMaxRepetition = 100.0F;
constexpr float kMaxPenalty = 2.0F;
constexpr float kMaxBias = 100.0F;
constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxRivals = 1024;
constexpr size_t kMaxBadWords = 1024;
constexpr size_t kMaxBadWordTokens = 1024;

template <typename T>
absl::Status OutOfRange(const char* field, T value, const std::string& range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; must be ", range));
}

absl::Status ValidateStops(const SamplingParams& params) {
  if (params.stop.size() > kMaxStops) {
    return OutOfRange("number of stop strings", params.stop.size(), "at most 64");
  }
  if (params.stop_tokens.size() > kMaxStops) {
    return OutOfRange("number of stop tokens", params.stop_tokens.size(), "at most 64");
  }
  for (const std::string& stop : params.stop) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return OutOfRange("length of a stop string", stop.size(), "1 to 4096 bytes");
    }
  }
  for (int32_t token : params.stop_tokens) {
    if (token < 0) {
      return OutOfRange("stop token", token, "a token id");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLengths(const SamplingParams& params) {
  const int64_t least = params.prompt_logprobs.has_value() ? 0 : 1;
  if (params.max_output_tokens < least) {
    return OutOfRange("max_output_tokens", params.max_output_tokens,
                      "at least 1, or 0 with prompt_logprobs");
  }
  if (params.min_output_tokens < 0 || params.min_output_tokens > params.max_output_tokens) {
    return OutOfRange("min_output_tokens", params.min_output_tokens,
                      absl::StrCat("0 to max_output_tokens, ", params.max_output_tokens));
  }
  return absl::OkStatus();
}

absl::Status ValidatePenalties(const SamplingParams& params) {
  if (!(params.repetition_penalty >= kMinRepetition &&
        params.repetition_penalty <= kMaxRepetition)) {
    return OutOfRange("repetition_penalty", params.repetition_penalty, "0.01 to 100");
  }
  if (!(std::abs(params.presence_penalty) <= kMaxPenalty)) {
    return OutOfRange("presence_penalty", params.presence_penalty, "-2 to 2");
  }
  if (!(std::abs(params.frequency_penalty) <= kMaxPenalty)) {
    return OutOfRange("frequency_penalty", params.frequency_penalty, "-2 to 2");
  }
  if (params.logit_bias.size() > kMaxBiases) {
    return OutOfRange("number of logit biases", params.logit_bias.size(), "at most 1024");
  }
  for (const LogitBias& bias : params.logit_bias) {
    if (bias.token < 0) {
      return OutOfRange("token of a logit bias", bias.token, "a token id");
    }
    if (!(std::abs(bias.bias) <= kMaxBias)) {
      return OutOfRange("logit bias", bias.bias, "-100 to 100");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateBadWords(const SamplingParams& params) {
  if (params.bad_words.size() > kMaxBadWords) {
    return OutOfRange("number of bad words", params.bad_words.size(), "at most 1024");
  }
  for (const std::vector<int32_t>& word : params.bad_words) {
    if (word.empty() || word.size() > kMaxBadWordTokens) {
      return OutOfRange("number of tokens of a bad word", word.size(), "1 to 1024");
    }
    for (const int32_t token : word) {
      if (token < 0) {
        return OutOfRange("token of a bad word", token, "a token id");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SamplingParams::Validate() const {
  RETURN_IF_ERROR(ValidateLengths(*this));
  if (temperature != 0.0F && !(temperature >= kMinTemperature && temperature <= kMaxTemperature)) {
    return OutOfRange("temperature", temperature, "0 or 0.000001 to 100");
  }
  if (!(top_p > 0.0F && top_p <= 1.0F)) {
    return OutOfRange("top_p", top_p, "above 0 and at most 1");
  }
  if (top_k < 0) {
    return OutOfRange("top_k", top_k, "0 (off) or more");
  }
  if (!(min_p >= 0.0F && min_p <= 1.0F)) {
    return OutOfRange("min_p", min_p, "0 to 1");
  }
  if (prompt_logprobs.has_value() && (*prompt_logprobs < 0 || *prompt_logprobs > kMaxTopLogprobs)) {
    return OutOfRange("prompt_logprobs", *prompt_logprobs, "0 to 20");
  }
  if (last_token_rivals.size() > kMaxRivals) {
    return OutOfRange("number of last_token_rivals", last_token_rivals.size(), "at most 1024");
  }
  if (scored_from < 0) {
    return OutOfRange("scored_from", scored_from, "a position of the prompt");
  }
  if (top_logprobs < 0 || top_logprobs > kMaxTopLogprobs) {
    return OutOfRange("top_logprobs", top_logprobs, "0 to 20");
  }
  RETURN_IF_ERROR(ValidatePenalties(*this));
  RETURN_IF_ERROR(ValidateBadWords(*this));
  return ValidateStops(*this);
}

}  // namespace nightshift
