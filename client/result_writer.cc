#include "client/result_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

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
  return {{"completion_tokens", usage.output_tokens()},
          {"prompt_tokens", usage.prompt_tokens()},
          {"total_tokens", usage.prompt_tokens() + usage.output_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens()}}}};
}

using TokenLogprobs = google::protobuf::RepeatedPtrField<v1::TokenLogprob>;

// One of a completion's choices, whichever message holds it.
struct ChoiceParts {
  int index = 0;
  const std::string& text;
  const TokenLogprobs& logprobs;
  v1::FinishReason finish_reason;
  const std::string& stop_reason;
  const google::protobuf::RepeatedField<int32_t>& token_ids;
};

template <typename Message>
ChoiceParts PartsOf(int index, const Message& message) {
  return {.index = index,
          .text = message.text(),
          .logprobs = message.logprobs(),
          .finish_reason = message.finish_reason(),
          .stop_reason = message.stop_reason(),
          .token_ids = message.token_ids()};
}

std::vector<ChoiceParts> ChoicesOf(const v1::Completion& completion) {
  std::vector<ChoiceParts> choices = {PartsOf(0, completion)};
  for (const v1::Choice& choice : completion.further_choices()) {
    choices.push_back(PartsOf(static_cast<int>(choices.size()), choice));
  }
  return choices;
}

// The prompt's tokens that a choice's logprobs begin with.
const TokenLogprobs& EchoedLogprobs(const v1::Completion& completion) {
  static const TokenLogprobs kNone;
  return completion.has_echoed_prompt() ? completion.prompt_logprobs() : kNone;
}

std::string TextOf(const v1::Completion& completion, const ChoiceParts& choice) {
  return completion.echoed_prompt() + choice.text;
}

// As chat completions: {"token", "bytes", "logprob"}, and "token_id" where OpenAI's shape need not
// be kept.
template <typename Token>
Json TokenJson(const Token& token, bool with_id) {
  Json json = {{"token", TokenText(token.bytes())},
               {"bytes", BytesJson(token.bytes())},
               {"logprob", LogprobJson(token.logprob())}};
  if (with_id) {
    json["token_id"] = token.token();
  }
  return json;
}

void AddTokens(const TokenLogprobs& tokens, bool with_id, Json& list) {
  for (const v1::TokenLogprob& token : tokens) {
    Json entry = TokenJson(token, with_id);
    Json top = Json::array();
    for (const v1::TopLogprob& alternative : token.top()) {
      top.push_back(TokenJson(alternative, with_id));
    }
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
}

// Nothing comes before the first token of a prompt, so it has no log-probability.
Json PromptTokenList(const TokenLogprobs& tokens) {
  Json list = Json::array();
  AddTokens(tokens, /*with_id=*/true, list);
  if (!list.empty()) {
    list.front()["logprob"] = nullptr;
  }
  return list;
}

Json ChatLogprobs(const ChoiceParts& choice) {
  if (choice.logprobs.empty()) {
    return nullptr;
  }
  Json list = Json::array();
  AddTokens(choice.logprobs, /*with_id=*/false, list);
  return {{"content", std::move(list)}, {"refusal", nullptr}};
}

int64_t CountCharacters(const std::string& bytes) {
  int64_t count = 0;
  for (const char byte : bytes) {
    count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  }
  return count;
}

// The parallel arrays of legacy completions.
class LogprobArrays {
 public:
  // Tokens of the text from its character `offset` on, in order; none begins behind `end_offset`.
  void Add(const TokenLogprobs& tokens, int64_t offset, int64_t end_offset) {
    for (const v1::TokenLogprob& token : tokens) {
      tokens_.push_back(TokenText(token.bytes()));
      logprobs_.push_back(LogprobJson(token.logprob()));
      top_logprobs_.push_back(TopOf(token));
      offsets_.push_back(std::min(offset, end_offset));
      offset += token.special() ? 0 : CountCharacters(token.bytes());
    }
  }
  // The first token of a prompt has no log-probability.
  void ClearFirst() { logprobs_.front() = top_logprobs_.front() = nullptr; }

  Json Take() {
    return {{"text_offset", std::move(offsets_)},
            {"token_logprobs", std::move(logprobs_)},
            {"tokens", std::move(tokens_)},
            {"top_logprobs", std::move(top_logprobs_)}};
  }

 private:
  // The alternatives and, where it is not among them, the token itself. Of tokens with the same
  // text the most likely counts.
  static Json TopOf(const v1::TokenLogprob& token) {
    Json top = Json::object();
    for (const v1::TopLogprob& alternative : token.top()) {
      top.emplace(TokenText(alternative.bytes()), LogprobJson(alternative.logprob()));
    }
    top.emplace(TokenText(token.bytes()), LogprobJson(token.logprob()));
    return top;
  }

  Json tokens_ = Json::array();
  Json logprobs_ = Json::array();
  Json top_logprobs_ = Json::array();
  Json offsets_ = Json::array();
};

Json CompletionLogprobs(const v1::Completion& completion, const ChoiceParts& choice) {
  const TokenLogprobs& echoed = EchoedLogprobs(completion);
  if (choice.logprobs.empty() && echoed.empty()) {
    return nullptr;
  }
  const int64_t prompt_end = CountCharacters(completion.echoed_prompt());
  LogprobArrays arrays;
  arrays.Add(echoed, 0, prompt_end);
  if (!echoed.empty()) {
    arrays.ClearFirst();
  }
  arrays.Add(choice.logprobs, prompt_end, prompt_end + CountCharacters(choice.text));
  return arrays.Take();
}

void AddStopReason(const ChoiceParts& choice, Json& json) {
  if (!choice.stop_reason.empty()) {
    json["stop_reason"] = choice.stop_reason;
  }
}

Json ChatChoice(const ChoiceParts& choice) {
  Json json = {
      {"finish_reason", FinishReasonText(choice.finish_reason)},
      {"index", choice.index},
      {"logprobs", ChatLogprobs(choice)},
      {"message", {{"content", choice.text}, {"refusal", nullptr}, {"role", "assistant"}}}};
  AddStopReason(choice, json);
  return json;
}

Json TextChoice(const v1::Completion& completion, const ChoiceParts& choice) {
  Json json = {{"finish_reason", FinishReasonText(choice.finish_reason)},
               {"index", choice.index},
               {"logprobs", CompletionLogprobs(completion, choice)},
               {"text", TextOf(completion, choice)}};
  AddStopReason(choice, json);
  return json;
}

Json ChoiceList(const v1::Completion& completion, bool is_chat) {
  Json list = Json::array();
  for (const ChoiceParts& choice : ChoicesOf(completion)) {
    list.push_back(is_chat ? ChatChoice(choice) : TextChoice(completion, choice));
  }
  return list;
}

// The caller's own words about the request; a server sends an object, or nothing.
void AddMetadata(const v1::Result& result, Json& json) {
  if (result.metadata().empty()) {
    return;
  }
  Json metadata = Json::parse(result.metadata(), nullptr, /*allow_exceptions=*/false);
  if (metadata.is_object()) {
    json["metadata"] = std::move(metadata);
  }
}

// What the synchronous endpoint would have answered.
Json CompletionBody(const v1::Result& result, const std::string& id, int64_t created) {
  const v1::Completion& completion = result.completion();
  const bool is_chat = result.form() == v1::REQUEST_FORM_OPENAI_CHAT;
  Json body = {{"id", absl::StrCat(is_chat ? "chatcmpl-" : "cmpl-", id)},
               {"choices", ChoiceList(completion, is_chat)},
               {"created", created},
               {"model", completion.model()},
               {"object", is_chat ? "chat.completion" : "text_completion"},
               {"usage", UsageJson(completion.usage())}};
  AddMetadata(result, body);
  return body;
}

Json ErrorBody(const ResultError& error) {
  return {{"error",
           {{"code", error.code},
            {"message", error.message},
            {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
            {"type", error.type}}}};
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

void AddPlainChoice(const v1::Completion& completion, const ChoiceParts& choice,
                    const ResultLineOptions& options, Json& json) {
  json["text"] = TextOf(completion, choice);
  json["finish_reason"] = FinishReasonText(choice.finish_reason);
  AddStopReason(choice, json);
  Json logprobs = PromptTokenList(EchoedLogprobs(completion));
  AddTokens(choice.logprobs, /*with_id=*/true, logprobs);
  if (!logprobs.empty()) {
    json["logprobs"] = std::move(logprobs);
  }
  // Without a tokenizer the ids are all there is.
  const bool has_ids_only = choice.text.empty() && !choice.token_ids.empty();
  if (options.include_token_ids || has_ids_only) {
    json["token_ids"] = Json(choice.token_ids);
  }
}

// What became of a row whose choices were scored.
void AddScores(const v1::Completion& completion, const ResultLineOptions& options, Json& line) {
  Json& list = line["choices"] = Json::array();
  for (const v1::ChoiceScore& score : completion.choice_scores()) {
    Json json = {{"index", list.size()},
                 {"text", score.text()},
                 {"logprob", std::isfinite(score.logprob()) ? score.logprob() : -9999.0},
                 {"tokens", score.token_ids_size()},
                 {"probability", score.probability()}};
    if (!score.logprobs().empty()) {
      AddTokens(score.logprobs(), /*with_id=*/true, json["logprobs"] = Json::array());
    }
    if (options.include_token_ids || score.text().empty()) {
      json["token_ids"] = Json(score.token_ids());
    }
    list.push_back(std::move(json));
  }
  line["best"] = completion.best_choice();
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
    AddMetadata(result, line);
    return line;
  }
  const v1::Completion& completion = result.completion();
  std::vector<ChoiceParts> choices = ChoicesOf(completion);
  if (!completion.choice_scores().empty()) {
    AddScores(completion, options, line);
  } else if (choices.size() == 1) {
    AddPlainChoice(completion, choices.front(), options, line);
  } else {
    line["choices"] = Json::array();
    for (const ChoiceParts& choice : choices) {
      Json json = {{"index", choice.index}};
      AddPlainChoice(completion, choice, options, json);
      line["choices"].push_back(std::move(json));
    }
  }
  if (!completion.has_echoed_prompt() && !completion.prompt_logprobs().empty()) {
    line["prompt_logprobs"] = PromptTokenList(completion.prompt_logprobs());
  }
  line["usage"] = UsageJson(completion.usage());
  AddMetadata(result, line);
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
