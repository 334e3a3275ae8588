#include "client/result_writer.h"

#include <charconv>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "client/result_error.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// Broken UTF-8 (a server never sends any) becomes U+FFFD instead of an abort.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsUtf8(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore) == Dump(Json(text));
}

// A token may hold a part of a character: OpenAI's completions write such bytes as
// "bytes:\xe2\x82".
std::string TokenText(const std::string& bytes) {
  if (IsUtf8(bytes)) {
    return bytes;
  }
  std::string text = "bytes:";
  for (const char byte : bytes) {
    absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(byte));
  }
  return text;
}

Json BytesJson(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) {
    list.push_back(static_cast<unsigned char>(byte));
  }
  return list;
}

// The shortest decimal that reads back as this float; JSON has no infinities, OpenAI writes -9999.
Json LogprobJson(float logprob) {
  if (!std::isfinite(logprob)) {
    return -9999.0;
  }
  char text[32];
  const auto written = std::to_chars(text, text + sizeof(text), logprob);
  double shortest = 0;
  std::from_chars(text, written.ptr, shortest);
  return shortest;
}

const char* FinishReasonText(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

Json UsageJson(const v1::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"completion_tokens", usage.output_tokens()},
          {"total_tokens", usage.prompt_tokens() + usage.output_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens()}}}};
}

// As chat completions: {"token", "logprob", "bytes"}, and "token_id" where OpenAI's shape need not
// be kept.
template <typename Token>
Json TokenJson(const Token& token, bool with_id) {
  Json json = {{"token", TokenText(token.bytes())},
               {"logprob", LogprobJson(token.logprob())},
               {"bytes", BytesJson(token.bytes())}};
  if (with_id) {
    json["token_id"] = token.token();
  }
  return json;
}

Json TokenList(const v1::Completion& completion, bool with_id) {
  Json list = Json::array();
  for (const v1::TokenLogprob& token : completion.logprobs()) {
    Json entry = TokenJson(token, with_id);
    Json top = Json::array();
    for (const v1::TopLogprob& alternative : token.top()) {
      top.push_back(TokenJson(alternative, with_id));
    }
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

Json ChatLogprobs(const v1::Completion& completion) {
  if (completion.logprobs().empty()) {
    return nullptr;
  }
  return {{"content", TokenList(completion, false)}, {"refusal", nullptr}};
}

int64_t CountCharacters(const std::string& bytes) {
  int64_t count = 0;
  for (const char byte : bytes) {
    count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  }
  return count;
}

// The parallel arrays of legacy completions; text_offset counts characters of `text`.
Json CompletionLogprobs(const v1::Completion& completion) {
  if (completion.logprobs().empty()) {
    return nullptr;
  }
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json top_logprobs = Json::array();
  Json offsets = Json::array();
  int64_t offset = 0;
  for (const v1::TokenLogprob& token : completion.logprobs()) {
    tokens.push_back(TokenText(token.bytes()));
    logprobs.push_back(LogprobJson(token.logprob()));
    Json top = Json::object();
    for (const v1::TopLogprob& alternative : token.top()) {
      top[TokenText(alternative.bytes())] = LogprobJson(alternative.logprob());
    }
    top_logprobs.push_back(std::move(top));
    offsets.push_back(offset);
    offset += CountCharacters(token.bytes());
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(top_logprobs)},
          {"text_offset", std::move(offsets)}};
}

void AddStopReason(const v1::Completion& completion, Json& json) {
  if (!completion.stop_reason().empty()) {
    json["stop_reason"] = completion.stop_reason();
  }
}

Json ChatChoice(const v1::Completion& completion) {
  Json choice = {{"index", 0},
                 {"message", {{"role", "assistant"}, {"content", completion.text()}}},
                 {"logprobs", ChatLogprobs(completion)},
                 {"finish_reason", FinishReasonText(completion.finish_reason())}};
  AddStopReason(completion, choice);
  return choice;
}

Json TextChoice(const v1::Completion& completion) {
  Json choice = {{"index", 0},
                 {"text", completion.text()},
                 {"logprobs", CompletionLogprobs(completion)},
                 {"finish_reason", FinishReasonText(completion.finish_reason())}};
  AddStopReason(completion, choice);
  return choice;
}

// What the synchronous endpoint would have answered.
Json CompletionBody(const v1::Result& result, const std::string& id, int64_t created) {
  const v1::Completion& completion = result.completion();
  const bool is_chat = result.form() == v1::REQUEST_FORM_OPENAI_CHAT;
  return {{"id", absl::StrCat(is_chat ? "chatcmpl-" : "cmpl-", id)},
          {"object", is_chat ? "chat.completion" : "text_completion"},
          {"created", created},
          {"model", completion.model()},
          {"choices", Json::array({is_chat ? ChatChoice(completion) : TextChoice(completion)})},
          {"usage", UsageJson(completion.usage())}};
}

Json ErrorBody(const ResultError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
            {"code", error.code}}}};
}

Json OpenAiLine(const v1::Result& result, const ResultLineOptions& options) {
  const std::string id =
      absl::StrCat(absl::StrReplaceAll(options.job_uid, {{"-", ""}}), "_", result.index());
  Json line = {{"id", absl::StrCat("batch_req_", id)},
               {"custom_id", result.custom_id()},
               {"response", nullptr},
               {"error", nullptr}};
  int status_code = 200;
  Json body;
  if (result.has_error()) {
    const ResultError error = ResultErrorOf(result.error());
    if (!error.has_run) {
      line["error"] = {{"code", error.code}, {"message", error.message}};
      return line;
    }
    status_code = error.status_code;
    body = ErrorBody(error);
  } else {
    body = CompletionBody(result, id, options.create_time_s);
  }
  line["response"] = {{"status_code", status_code},
                      {"request_id", absl::StrCat("req_", id)},
                      {"body", std::move(body)}};
  return line;
}

Json PlainLine(const v1::Result& result, const ResultLineOptions& options) {
  Json line;
  if (!result.custom_id().empty()) {
    line["id"] = result.custom_id();
  }
  line["index"] = result.index();
  if (result.has_error()) {
    const ResultError error = ResultErrorOf(result.error());
    line["error"] = {{"code", error.code}, {"message", error.message}};
    if (!error.param.empty()) {
      line["error"]["param"] = error.param;
    }
    return line;
  }
  const v1::Completion& completion = result.completion();
  line["text"] = completion.text();
  line["finish_reason"] = FinishReasonText(completion.finish_reason());
  AddStopReason(completion, line);
  line["usage"] = UsageJson(completion.usage());
  if (!completion.logprobs().empty()) {
    line["logprobs"] = TokenList(completion, true);
  }
  // Without a tokenizer the ids are all there is.
  const bool has_ids_only = completion.text().empty() && !completion.token_ids().empty();
  if (options.include_token_ids || has_ids_only) {
    line["token_ids"] = Json(completion.token_ids());
  }
  return line;
}

}  // namespace

ResultLineOptions ResultLineOptionsOf(const v1::Job& job) {
  ResultLineOptions options;
  options.job_uid = job.uid();
  options.create_time_s = job.create_time().seconds();
  return options;
}

std::string ResultLine(const v1::Result& result, const ResultLineOptions& options) {
  const bool is_openai = result.form() == v1::REQUEST_FORM_OPENAI_CHAT ||
                         result.form() == v1::REQUEST_FORM_OPENAI_COMPLETION;
  return Dump(is_openai ? OpenAiLine(result, options) : PlainLine(result, options)) + "\n";
}

}  // namespace nightshift
