#include "server/input/request_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "engine/text/template_arguments.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "server/input/json_line.h"
#include "server/input/row_error.h"

namespace nightshift {
namespace {

bool IsUtf8(absl::string_view text) {
  return FindInvalidUtf8(text) == absl::string_view::npos;
}

absl::Status NotUtf8(absl::string_view param, absl::string_view text) {
  return RowError(reason::kInputMalformed, row_code::kInvalidValue, param,
                  absl::StrCat("invalid UTF-8 at byte ", FindInvalidUtf8(text)));
}

void CheckStop(const v1::SamplingOptions& sampling, std::vector<FieldViolation>& violations) {
  if (sampling.stop_size() > kMaxStopStrings) {
    violations.push_back({"stop", absl::StrCat("has ", sampling.stop_size(), " strings, at most ",
                                               kMaxStopStrings)});
  }
  for (int i = 0; i < sampling.stop_size() && i < kMaxStopStrings; ++i) {
    const std::string& stop = sampling.stop(i);
    const std::string field = absl::StrCat("stop[", i, "]");
    if (stop.empty() || static_cast<int64_t>(stop.size()) > kMaxStopBytes) {
      violations.push_back(
          {field, absl::StrCat("has ", stop.size(), " bytes, must have 1 to ", kMaxStopBytes)});
    } else if (!IsUtf8(stop)) {
      violations.push_back({field, "is not UTF-8"});
    }
  }
  if (sampling.stop_token_ids_size() > kMaxStopTokens) {
    violations.push_back({"stop_token_ids", absl::StrCat("has ", sampling.stop_token_ids_size(),
                                                         " ids, at most ", kMaxStopTokens)});
  }
  for (int i = 0; i < sampling.stop_token_ids_size() && i < kMaxStopTokens; ++i) {
    if (sampling.stop_token_ids(i) < 0) {
      violations.push_back(
          {absl::StrCat("stop_token_ids[", i, "]"),
           absl::StrCat("is ", sampling.stop_token_ids(i), ", must be 0 or more")});
    }
  }
}

void CheckLogitBias(const v1::SamplingOptions& sampling, std::vector<FieldViolation>& violations) {
  constexpr double kMaxBias = 100.0;
  if (sampling.logit_bias_size() > kMaxLogitBiases) {
    violations.push_back({"logit_bias", absl::StrCat("has ", sampling.logit_bias_size(),
                                                     " tokens, at most ", kMaxLogitBiases)});
    return;
  }
  // A map has no order of its own; errors name the lowest token.
  std::vector<std::pair<int32_t, double>> biases(sampling.logit_bias().begin(),
                                                 sampling.logit_bias().end());
  std::sort(biases.begin(), biases.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [token, bias] : biases) {
    if (token < 0) {
      violations.push_back(
          {"logit_bias", absl::StrCat("has the token id ", token, ", must be 0 or more")});
    }
    if (!(std::abs(bias) <= kMaxBias)) {
      violations.push_back(
          {absl::StrCat("logit_bias.", token), absl::StrCat("is ", bias, ", must be -100 to 100")});
    }
  }
}

void CheckBadWord(const v1::BadWord& word, const std::string& field,
                  std::vector<FieldViolation>& violations) {
  const auto require_size = [&](int64_t size, const char* unit, int64_t most) {
    if (size < 1 || size > most) {
      violations.push_back(
          {field, absl::StrCat("has ", size, " ", unit, ", must have 1 to ", most)});
    }
  };
  if (word.word_case() == v1::BadWord::kTokens) {
    const auto& ids = word.tokens().ids();
    require_size(ids.size(), "ids", kMaxBadWordTokens);
    if (std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id < 0; })) {
      violations.push_back({field, "has a negative id"});
    }
    return;
  }
  require_size(static_cast<int64_t>(word.text().size()), "bytes", kMaxBadWordBytes);
  if (!IsUtf8(word.text())) {
    violations.push_back({field, "is not UTF-8"});
  }
}

void CheckBadWords(const v1::SamplingOptions& sampling, std::vector<FieldViolation>& violations) {
  if (sampling.bad_words_size() > kMaxBadWords) {
    violations.push_back({"bad_words", absl::StrCat("has ", sampling.bad_words_size(),
                                                    " words, at most ", kMaxBadWords)});
    return;
  }
  for (int i = 0; i < sampling.bad_words_size(); ++i) {
    CheckBadWord(sampling.bad_words(i), absl::StrCat("bad_words[", i, "]"), violations);
  }
}

absl::Status CheckChat(const v1::Chat& chat, const ParseLimits& limits) {
  if (chat.messages_size() == 0) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "messages", "is empty");
  }
  if (chat.messages_size() > limits.max_messages) {
    return RowError(
        reason::kFieldInvalid, row_code::kInvalidValue, "messages",
        absl::StrCat("has ", chat.messages_size(), " messages, at most ", limits.max_messages));
  }
  int64_t bytes = 0;
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    const std::string at = absl::StrCat("messages[", i, "]");
    if (!IsChatRole(message.role())) {
      return RowError(reason::kFieldInvalid, row_code::kInvalidValue, at + ".role",
                      WrongRole(message.role()));
    }
    if (!IsUtf8(message.content())) {
      return NotUtf8(at + ".content", message.content());
    }
    if (!IsUtf8(message.name())) {
      return NotUtf8(at + ".name", message.name());
    }
    bytes += static_cast<int64_t>(message.content().size() + message.name().size());
  }
  if (bytes > limits.max_prompt_bytes) {
    return RowError(reason::kPromptTooLong, row_code::kTooLong, "messages",
                    absl::StrCat("hold ", bytes, " bytes, at most ", limits.max_prompt_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const v1::TokenIds& tokens, const ParseLimits& limits) {
  if (tokens.ids_size() == 0) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "prompt", "is empty");
  }
  if (tokens.ids_size() > limits.max_prompt_tokens) {
    return RowError(
        reason::kPromptTooLong, row_code::kTooLong, "prompt",
        absl::StrCat("has ", tokens.ids_size(), " tokens, at most ", limits.max_prompt_tokens));
  }
  for (int i = 0; i < tokens.ids_size(); ++i) {
    if (tokens.ids(i) < 0) {
      return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue,
                      absl::StrCat("prompt[", i, "]"),
                      absl::StrCat("is ", tokens.ids(i), ", must be 0 or more"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(const std::string& prompt, const ParseLimits& limits) {
  if (prompt.empty()) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "prompt", "is empty");
  }
  if (static_cast<int64_t>(prompt.size()) > limits.max_prompt_bytes) {
    return RowError(
        reason::kPromptTooLong, row_code::kTooLong, "prompt",
        absl::StrCat("has ", prompt.size(), " bytes, at most ", limits.max_prompt_bytes));
  }
  return IsUtf8(prompt) ? absl::OkStatus() : NotUtf8("prompt", prompt);
}

absl::Status CheckMetadata(const std::string& metadata, const ParseLimits& limits) {
  const int64_t bytes = static_cast<int64_t>(metadata.size());
  if (bytes > kMaxMetadataBytes) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "metadata",
                    absl::StrCat("has ", bytes, " bytes, at most ", kMaxMetadataBytes));
  }
  return metadata.empty() || ParseJsonLine(metadata, limits).ok()
             ? absl::OkStatus()
             : RowError(reason::kFieldInvalid, row_code::kInvalidType, "metadata",
                        "must be a JSON object");
}

}  // namespace

std::vector<FieldViolation> CheckSampling(const v1::SamplingOptions& sampling,
                                          const ParseLimits& limits) {
  std::vector<FieldViolation> violations;
  const auto require = [&](bool valid, const char* field, auto value, const std::string& range) {
    if (!valid) {
      violations.push_back({field, absl::StrCat("is ", value, ", must be ", range)});
    }
  };
  if (sampling.has_max_output_tokens()) {
    const int64_t tokens = sampling.max_output_tokens();
    require(tokens >= 0 && tokens <= kMaxOutputTokens, "max_output_tokens", tokens, "0 to 1048576");
  }
  if (sampling.has_min_output_tokens()) {
    const int64_t tokens = sampling.min_output_tokens();
    require(tokens >= 0 && tokens <= kMaxOutputTokens, "min_output_tokens", tokens, "0 to 1048576");
  }
  if (sampling.has_temperature()) {
    const double temperature = sampling.temperature();
    require(std::isfinite(temperature) && temperature >= 0.0 && temperature <= 2.0, "temperature",
            temperature, "0 to 2");
  }
  if (sampling.has_top_p()) {
    const double top_p = sampling.top_p();
    require(std::isfinite(top_p) && top_p > 0.0 && top_p <= 1.0, "top_p", top_p,
            "above 0 and at most 1");
  }
  if (sampling.has_top_k()) {
    require(sampling.top_k() >= 0, "top_k", sampling.top_k(), "0 (off) or more");
  }
  if (sampling.has_top_logprobs()) {
    const int32_t top = sampling.top_logprobs();
    require(top >= 0 && top <= kMaxTopLogprobs, "top_logprobs", top, "0 to 20");
  }
  // NaN fails every comparison, and infinity every range.
  const auto require_between = [&](double value, const char* field, double low, double high) {
    require(value >= low && value <= high, field, value, absl::StrCat(low, " to ", high));
  };
  if (sampling.has_min_p()) {
    require_between(sampling.min_p(), "min_p", 0.0, 1.0);
  }
  if (sampling.has_repetition_penalty()) {
    require_between(sampling.repetition_penalty(), "repetition_penalty", 0.01, 100.0);
  }
  if (sampling.has_presence_penalty()) {
    require_between(sampling.presence_penalty(), "presence_penalty", -2.0, 2.0);
  }
  if (sampling.has_frequency_penalty()) {
    require_between(sampling.frequency_penalty(), "frequency_penalty", -2.0, 2.0);
  }
  if (sampling.has_num_choices()) {
    const int32_t choices = sampling.num_choices();
    require(choices >= 1 && choices <= limits.max_choices, "num_choices", choices,
            absl::StrCat("1 to ", limits.max_choices));
  }
  CheckLogitBias(sampling, violations);
  CheckBadWords(sampling, violations);
  CheckStop(sampling, violations);
  return violations;
}

absl::Status CheckPromptReports(const v1::InferenceRequest& request) {
  if (request.echo() && request.has_chat()) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "echo",
                    "needs a prompt, is given beside messages");
  }
  if (request.echo() && request.has_prompt_logprobs()) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "prompt_logprobs",
                    "given beside echo, whose logprobs cover the prompt");
  }
  if (request.has_prompt_logprobs() &&
      (request.prompt_logprobs() < 0 || request.prompt_logprobs() > kMaxTopLogprobs)) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "prompt_logprobs",
                    absl::StrCat("is ", request.prompt_logprobs(), ", must be 0 to 20"));
  }
  const v1::SamplingOptions& sampling = request.sampling();
  if (sampling.has_max_output_tokens() && sampling.max_output_tokens() == 0 && !request.echo() &&
      !request.has_prompt_logprobs() && request.choices().empty()) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "max_tokens",
                    "is 0, must be 1 to 1048576, or 0 with echo, prompt_logprobs or choices");
  }
  return absl::OkStatus();
}

absl::Status CheckNumChoices(int64_t count, const ParseLimits& limits) {
  return count >= 1 && count <= limits.max_scored_choices
             ? absl::OkStatus()
             : RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, "choices",
                        absl::StrCat("has ", count, " entries, must have 1 to ",
                                     limits.max_scored_choices));
}

absl::Status CheckChoice(const v1::Continuation& choice, const std::string& param,
                         const ParseLimits& limits) {
  const auto check_size = [&](int64_t size, const char* unit, int64_t most) {
    return size >= 1 && size <= most
               ? absl::OkStatus()
               : RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, param,
                          absl::StrCat("has ", size, " ", unit, ", must have 1 to ", most));
  };
  if (choice.has_tokens()) {
    const auto& ids = choice.tokens().ids();
    if (std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id < 0; })) {
      return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, param,
                      "has a negative token id");
    }
    return check_size(ids.size(), "token ids", limits.max_scored_choice_tokens);
  }
  RETURN_IF_ERROR(check_size(static_cast<int64_t>(choice.text().size()), "bytes",
                             limits.max_scored_choice_bytes));
  return IsUtf8(choice.text()) ? absl::OkStatus() : NotUtf8(param, choice.text());
}

// Of a request that has some.
absl::Status CheckChoices(const v1::InferenceRequest& request, const ParseLimits& limits) {
  RETURN_IF_ERROR(CheckNumChoices(request.choices_size(), limits));
  for (int i = 0; i < request.choices_size(); ++i) {
    RETURN_IF_ERROR(CheckChoice(request.choices(i), absl::StrCat("choices[", i, "]"), limits));
  }
  const auto beside = [](const char* param, const char* why) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, param,
                    absl::StrCat("given beside choices, ", why));
  };
  if (request.echo()) {
    return beside("echo", "which are scored alone");
  }
  if (request.has_prompt_logprobs()) {
    return beside("prompt_logprobs", "whose logprobs are those behind the prompt");
  }
  if (request.sampling().max_output_tokens() > 0) {
    return beside("max_tokens", "which generate nothing");
  }
  if (request.sampling().num_choices() > 1) {
    return beside("n", "which generate nothing");
  }
  return absl::OkStatus();
}

std::string CheckPromptOptions(const v1::PromptOptions& options) {
  if (options.chat_template_kwargs().empty()) {
    return "";
  }
  return std::string(ParseTemplateArguments(options.chat_template_kwargs()).status().message());
}

absl::Status CheckRequest(const v1::InferenceRequest& request, const ParseLimits& limits) {
  if (static_cast<int64_t>(request.custom_id().size()) > limits.max_custom_id_bytes) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidCustomId, "custom_id",
                    absl::StrCat("has ", request.custom_id().size(), " bytes, at most ",
                                 limits.max_custom_id_bytes));
  }
  RETURN_IF_ERROR(CheckMetadata(request.metadata(), limits));
  const std::vector<FieldViolation> violations = CheckSampling(request.sampling(), limits);
  if (!violations.empty()) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue,
                    absl::StrCat("sampling.", violations[0].field), violations[0].description);
  }
  if (!request.choices().empty()) {
    RETURN_IF_ERROR(CheckChoices(request, limits));
  }
  RETURN_IF_ERROR(CheckPromptReports(request));
  if (const std::string refused = CheckPromptOptions(request.prompt_options()); !refused.empty()) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "chat_template_kwargs",
                    refused);
  }
  switch (request.input_case()) {
    case v1::InferenceRequest::kPrompt:
      return CheckPrompt(request.prompt(), limits);
    case v1::InferenceRequest::kTokens:
      return CheckTokens(request.tokens(), limits);
    case v1::InferenceRequest::kChat:
      return CheckChat(request.chat(), limits);
    case v1::InferenceRequest::INPUT_NOT_SET:
      break;
  }
  return RowError(reason::kFieldInvalid, row_code::kMissingField, "prompt",
                  "request has neither prompt, tokens nor chat");
}

bool IsChatRole(absl::string_view role) {
  return role == "system" || role == "user" || role == "assistant";
}

std::string WrongRole(absl::string_view role) {
  constexpr size_t kMaxQuotedBytes = 32;
  if (role == "tool" || role == "function") {
    return absl::StrCat("role ", role, " is not in this version, which has no tools");
  }
  return absl::StrCat("unknown role ", CleanText(role, kMaxQuotedBytes),
                      ", known: system, user, assistant, developer");
}

}  // namespace nightshift
