#include "server/input/sampling_fields.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/json_fields.h"
#include "server/input/request_check.h"
#include "server/input/row_error.h"

namespace nightshift {
namespace {

using nlohmann::json;

// The range check sees 32-bit fields: what does not fit in them is out of range already.
absl::StatusOr<int32_t> Narrow(int64_t value, const char* name) {
  if (value < INT32_MIN || value > INT32_MAX) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, name,
                    absl::StrCat("is ", value, ", does not fit in 32 bits"));
  }
  return static_cast<int32_t>(value);
}

absl::Status ReadMaxTokens(const json& body, v1::SamplingOptions& sampling) {
  ASSIGN_OR_RETURN(const auto max_tokens, ReadInteger(body, "max_tokens"));
  ASSIGN_OR_RETURN(const auto completion_tokens, ReadInteger(body, "max_completion_tokens"));
  if (max_tokens && completion_tokens && *max_tokens != *completion_tokens) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "max_completion_tokens",
                    absl::StrCat("is ", *completion_tokens, " while max_tokens is ", *max_tokens));
  }
  if (max_tokens || completion_tokens) {
    sampling.set_max_output_tokens(max_tokens ? *max_tokens : *completion_tokens);
  }
  return absl::OkStatus();
}

absl::Status ReadSeed(const json& body, v1::SamplingOptions& sampling) {
  const json* seed = FindField(body, "seed");
  if (seed == nullptr) {
    return absl::OkStatus();
  }
  if (seed->is_number_unsigned()) {
    sampling.set_seed(seed->get<uint64_t>());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t value, AsInteger(*seed, "seed"));
  // OpenAI's seeds are signed: a negative one is the same 64 bits.
  sampling.set_seed(static_cast<uint64_t>(value));
  return absl::OkStatus();
}

absl::Status ReadStop(const json& body, v1::SamplingOptions& sampling) {
  const json* stop = FindField(body, "stop");
  if (stop == nullptr) {
    return absl::OkStatus();
  }
  if (stop->is_string()) {
    sampling.add_stop(stop->get_ref<const std::string&>());
    return absl::OkStatus();
  }
  if (!stop->is_array()) {
    return WrongType("stop", "a string or a list of strings", stop->type_name());
  }
  for (size_t i = 0; i < stop->size(); ++i) {
    const json& item = (*stop)[i];
    if (!item.is_string()) {
      return WrongType(absl::StrCat("stop[", i, "]"), "a string", item.type_name());
    }
    sampling.add_stop(item.get_ref<const std::string&>());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ReadIds(const json& list, const std::string& param) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = absl::StrCat(param, "[", i, "]");
    ASSIGN_OR_RETURN(const int64_t token, AsInteger(list[i], at));
    ASSIGN_OR_RETURN(const int32_t id, Narrow(token, at.c_str()));
    ids.push_back(id);
  }
  return ids;
}

absl::Status ReadStopTokens(const json& body, v1::SamplingOptions& sampling) {
  const json* stop = FindField(body, "stop_token_ids");
  if (stop == nullptr) {
    return absl::OkStatus();
  }
  if (!stop->is_array()) {
    return WrongType("stop_token_ids", "a list of token ids", stop->type_name());
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(*stop, "stop_token_ids"));
  sampling.mutable_stop_token_ids()->Assign(ids.begin(), ids.end());
  return absl::OkStatus();
}

// Refuses a list of a million before it is copied.
absl::Status CheckCount(const char* param, size_t count, int64_t most) {
  return static_cast<int64_t>(count) <= most
             ? absl::OkStatus()
             : RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, param,
                        absl::StrCat("has ", count, " entries, at most ", most));
}

absl::Status ReadBadWords(const json& body, v1::SamplingOptions& sampling) {
  const json* words = FindField(body, "bad_words");
  if (words == nullptr) {
    return absl::OkStatus();
  }
  if (!words->is_array()) {
    return WrongType("bad_words", "a list of strings or lists of token ids", words->type_name());
  }
  RETURN_IF_ERROR(CheckCount("bad_words", words->size(), kMaxBadWords));
  for (size_t i = 0; i < words->size(); ++i) {
    const json& word = (*words)[i];
    const std::string param = absl::StrCat("bad_words[", i, "]");
    if (word.is_string()) {
      sampling.add_bad_words()->set_text(word.get_ref<const std::string&>());
      continue;
    }
    if (!word.is_array()) {
      return WrongType(param, "a string or a list of token ids", word.type_name());
    }
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(word, param));
    sampling.add_bad_words()->mutable_tokens()->mutable_ids()->Assign(ids.begin(), ids.end());
  }
  return absl::OkStatus();
}

// The id of a key such as "50256", which is written in one way only.
bool ReadTokenKey(const std::string& key, int32_t& id) {
  return absl::SimpleAtoi(key, &id) && id >= 0 && absl::StrCat(id) == key;
}

absl::Status ReadLogitBias(const json& body, v1::SamplingOptions& sampling) {
  const json* biases = FindField(body, "logit_bias");
  if (biases == nullptr) {
    return absl::OkStatus();
  }
  if (!biases->is_object()) {
    return WrongType("logit_bias", "an object of token ids and numbers", biases->type_name());
  }
  RETURN_IF_ERROR(CheckCount("logit_bias", biases->size(), kMaxLogitBiases));
  for (const auto& [key, bias] : biases->items()) {
    int32_t id = 0;
    if (!ReadTokenKey(key, id)) {
      return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "logit_bias",
                      "has a key that is no token id");
    }
    if (!bias.is_number()) {
      return WrongType(absl::StrCat("logit_bias.", id), "a number", bias.type_name());
    }
    (*sampling.mutable_logit_bias())[id] = bias.get<double>();
  }
  return absl::OkStatus();
}

absl::Status ReadPenalties(const json& body, v1::SamplingOptions& sampling) {
  ASSIGN_OR_RETURN(const auto repetition, ReadNumber(body, "repetition_penalty"));
  if (repetition) {
    sampling.set_repetition_penalty(*repetition);
  }
  ASSIGN_OR_RETURN(const auto presence, ReadNumber(body, "presence_penalty"));
  if (presence) {
    sampling.set_presence_penalty(*presence);
  }
  ASSIGN_OR_RETURN(const auto frequency, ReadNumber(body, "frequency_penalty"));
  if (frequency) {
    sampling.set_frequency_penalty(*frequency);
  }
  RETURN_IF_ERROR(ReadLogitBias(body, sampling));
  return ReadBadWords(body, sampling);
}

absl::Status ReadLengthsAndChoices(const json& body, v1::SamplingOptions& sampling) {
  ASSIGN_OR_RETURN(const auto min_tokens, ReadInteger(body, "min_tokens"));
  if (min_tokens) {
    sampling.set_min_output_tokens(*min_tokens);
  }
  ASSIGN_OR_RETURN(const auto ignore_eos, ReadBool(body, "ignore_eos"));
  if (ignore_eos) {
    sampling.set_ignore_eos(*ignore_eos);
  }
  ASSIGN_OR_RETURN(const auto choices, ReadInteger(body, "n"));
  if (choices) {
    ASSIGN_OR_RETURN(const int32_t narrow, Narrow(*choices, "n"));
    sampling.set_num_choices(narrow);
  }
  return absl::OkStatus();
}

absl::Status ReadLogprobs(const json& body, RowKind kind, v1::SamplingOptions& sampling) {
  const json* logprobs = FindField(body, "logprobs");
  if (logprobs != nullptr && logprobs->is_boolean() && kind != RowKind::kCompletion) {
    sampling.set_logprobs(logprobs->get<bool>());
  } else if (logprobs != nullptr && kind != RowKind::kChat) {
    ASSIGN_OR_RETURN(const int64_t count, AsInteger(*logprobs, "logprobs"));
    ASSIGN_OR_RETURN(const int32_t top, Narrow(count, "logprobs"));
    sampling.set_logprobs(true);
    sampling.set_top_logprobs(top);
  } else if (logprobs != nullptr) {
    return WrongType("logprobs", "true or false", logprobs->type_name());
  }
  ASSIGN_OR_RETURN(const auto top, ReadInteger(body, "top_logprobs"));
  if (!top) {
    return absl::OkStatus();
  }
  if (kind == RowKind::kCompletion) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "top_logprobs",
                    "belongs to chat completions; completions take logprobs as a number");
  }
  if (!sampling.logprobs() && *top != 0) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "top_logprobs",
                    "needs logprobs to be true");
  }
  ASSIGN_OR_RETURN(const int32_t narrow, Narrow(*top, "top_logprobs"));
  sampling.set_top_logprobs(narrow);
  return absl::OkStatus();
}

// How the row spells a field of SamplingOptions.
std::string ParamOf(const std::string& field, const json& body) {
  if (field == "max_output_tokens") {
    return FindField(body, "max_tokens") != nullptr ? "max_tokens" : "max_completion_tokens";
  }
  if (field == "min_output_tokens") {
    return "min_tokens";
  }
  if (field == "num_choices") {
    return "n";
  }
  if (field == "top_logprobs" && FindField(body, "top_logprobs") == nullptr) {
    return "logprobs";
  }
  return field;
}

}  // namespace

absl::Status ReadSampling(const json& body, RowKind kind, const ParseLimits& limits,
                          v1::SamplingOptions& sampling) {
  RETURN_IF_ERROR(ReadMaxTokens(body, sampling));
  ASSIGN_OR_RETURN(const auto temperature, ReadNumber(body, "temperature"));
  if (temperature) {
    sampling.set_temperature(*temperature);
  }
  ASSIGN_OR_RETURN(const auto top_p, ReadNumber(body, "top_p"));
  if (top_p) {
    sampling.set_top_p(*top_p);
  }
  ASSIGN_OR_RETURN(const auto top_k, ReadInteger(body, "top_k"));
  if (top_k) {
    // vLLM writes "off" as -1.
    ASSIGN_OR_RETURN(const int32_t narrow, Narrow(*top_k == -1 ? 0 : *top_k, "top_k"));
    sampling.set_top_k(narrow);
  }
  ASSIGN_OR_RETURN(const auto min_p, ReadNumber(body, "min_p"));
  if (min_p) {
    sampling.set_min_p(*min_p);
  }
  RETURN_IF_ERROR(ReadPenalties(body, sampling));
  RETURN_IF_ERROR(ReadLengthsAndChoices(body, sampling));
  RETURN_IF_ERROR(ReadSeed(body, sampling));
  RETURN_IF_ERROR(ReadStop(body, sampling));
  RETURN_IF_ERROR(ReadStopTokens(body, sampling));
  RETURN_IF_ERROR(ReadLogprobs(body, kind, sampling));
  const std::vector<FieldViolation> violations = CheckSampling(sampling, limits);
  if (!violations.empty()) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue,
                    ParamOf(violations[0].field, body), violations[0].description);
  }
  return absl::OkStatus();
}

absl::Status ReadPromptReports(const json& body, RowKind kind, v1::InferenceRequest& request) {
  ASSIGN_OR_RETURN(const auto echo, ReadBool(body, "echo"));
  if (echo && *echo && kind == RowKind::kChat) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "echo",
                    "belongs to /v1/completions");
  }
  request.set_echo(echo && *echo);
  ASSIGN_OR_RETURN(const auto prompt_logprobs, ReadInteger(body, "prompt_logprobs"));
  if (prompt_logprobs && kind != RowKind::kPlain) {
    return RowError(reason::kFieldInvalid, row_code::kUnsupported, "prompt_logprobs",
                    "belongs to the plain form; /v1/completions takes echo with logprobs");
  }
  if (prompt_logprobs) {
    ASSIGN_OR_RETURN(const int32_t narrow, Narrow(*prompt_logprobs, "prompt_logprobs"));
    request.set_prompt_logprobs(narrow);
  }
  return absl::OkStatus();
}

}  // namespace nightshift
