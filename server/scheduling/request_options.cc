#include "server/scheduling/request_options.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "engine/text/template_arguments.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using json = nlohmann::ordered_json;

// `over` replaces what `arguments` has of the same name.
absl::Status LayOver(const std::string& over, json& arguments) {
  if (over.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(json parsed, ParseTemplateArguments(over));
  for (auto argument = parsed.begin(); argument != parsed.end(); ++argument) {
    arguments[argument.key()] = std::move(argument.value());
  }
  return absl::OkStatus();
}

}  // namespace

v1::SamplingOptions MergeSampling(const v1::SamplingOptions& job, const v1::SamplingOptions& row) {
  v1::SamplingOptions options = job;
  if (row.stop_size() > 0) {
    options.clear_stop();
  }
  if (row.stop_token_ids_size() > 0) {
    options.clear_stop_token_ids();
  }
  if (row.logit_bias_size() > 0) {
    options.clear_logit_bias();
  }
  if (row.bad_words_size() > 0) {
    options.clear_bad_words();
  }
  options.MergeFrom(row);
  return options;
}

SamplingParams ResolveSampling(const v1::SamplingOptions& options, int64_t index) {
  SamplingParams sampling;
  sampling.max_output_tokens =
      options.has_max_output_tokens() ? options.max_output_tokens() : kDefaultMaxOutputTokens;
  sampling.min_output_tokens = options.min_output_tokens();
  sampling.temperature = static_cast<float>(options.temperature());
  sampling.top_p = options.has_top_p() ? static_cast<float>(options.top_p()) : 1.0F;
  sampling.top_k = options.top_k();
  sampling.min_p = static_cast<float>(options.min_p());
  sampling.repetition_penalty =
      options.has_repetition_penalty() ? static_cast<float>(options.repetition_penalty()) : 1.0F;
  sampling.presence_penalty = static_cast<float>(options.presence_penalty());
  sampling.frequency_penalty = static_cast<float>(options.frequency_penalty());
  for (const auto& [token, bias] : options.logit_bias()) {
    sampling.logit_bias.push_back({token, static_cast<float>(bias)});
  }
  for (const v1::BadWord& word : options.bad_words()) {
    if (word.has_tokens()) {
      sampling.bad_words.emplace_back(word.tokens().ids().begin(), word.tokens().ids().end());
    }
  }
  sampling.ignore_eos = options.ignore_eos();
  sampling.seed = options.seed();
  sampling.request_key = static_cast<uint64_t>(index);
  sampling.stop.assign(options.stop().begin(), options.stop().end());
  sampling.stop_tokens.assign(options.stop_token_ids().begin(), options.stop_token_ids().end());
  sampling.want_logprobs = options.logprobs();
  sampling.top_logprobs = options.logprobs() ? options.top_logprobs() : 0;
  return sampling;
}

std::optional<int32_t> ResolvePromptLogprobs(const v1::SamplingOptions& options,
                                             const v1::InferenceRequest& row) {
  if (row.has_prompt_logprobs()) {
    return row.prompt_logprobs();
  }
  return row.echo() && options.logprobs() ? std::optional(options.top_logprobs()) : std::nullopt;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> EncodeBadWords(const v1::SamplingOptions& options,
                                                                 const Tokenizer* tokenizer) {
  std::vector<std::vector<int32_t>> words;
  for (int i = 0; i < options.bad_words_size(); ++i) {
    const v1::BadWord& word = options.bad_words(i);
    if (word.has_tokens()) {
      continue;
    }
    if (tokenizer == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bad_words[", i, "] is text and needs a tokenizer, which the model does not have"));
    }
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(word.text());
    for (const absl::string_view before : {"", " "}) {
      ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                       tokenizer->Encode(absl::StrCat(before, text), {}));
      if (!tokens.empty()) {
        words.push_back(std::move(tokens));
      }
    }
  }
  return words;
}

absl::StatusOr<EncodeOptions> ResolvePromptOptions(const v1::PromptOptions& job,
                                                   const v1::PromptOptions& row,
                                                   int64_t create_time_us) {
  v1::PromptOptions options = job;
  options.MergeFrom(row);
  EncodeOptions encode;
  encode.parse_special_in_content = options.parse_special_in_content();
  encode.add_generation_prompt =
      options.has_add_generation_prompt() ? options.add_generation_prompt() : true;
  RETURN_IF_ERROR(LayOver(job.chat_template_kwargs(), encode.template_arguments));
  RETURN_IF_ERROR(LayOver(row.chat_template_kwargs(), encode.template_arguments));
  encode.now_us = create_time_us;
  return encode;
}

json MessagesToJson(const v1::Chat& chat) {
  json messages = json::array();
  for (const v1::ChatMessage& message : chat.messages()) {
    json object = {{"role", message.role()}, {"content", message.content()}};
    if (!message.name().empty()) {
      object["name"] = message.name();
    }
    messages.push_back(std::move(object));
  }
  return messages;
}

}  // namespace nightshift
