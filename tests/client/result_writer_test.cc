// Result lines against JSON written by hand from the published formats.
#include "client/result_writer.h"

#include <fstream>
#include <limits>
#include <map>
#include <string>

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"

#include "client/result_error.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

using nlohmann::json;

ResultLineOptions Options() {
  ResultLineOptions options;
  options.job_uid = "0198c0de-0000-7000-8000-0000000000aa";
  options.create_time_s = 1'750'000'000;
  return options;
}

v1::Result Completed(v1::RequestForm form) {
  v1::Result result;
  result.set_seq(9);
  result.set_index(3);
  result.set_custom_id("row-3");
  result.set_form(form);
  v1::Completion& completion = *result.mutable_completion();
  completion.set_text(" Paris");
  completion.set_finish_reason(v1::FINISH_REASON_LENGTH);
  completion.set_model("smollm2");
  completion.add_token_ids(7042);
  completion.mutable_usage()->set_prompt_tokens(5);
  completion.mutable_usage()->set_output_tokens(1);
  completion.mutable_usage()->set_cached_tokens(2);
  return result;
}

v1::TokenLogprob* AddToken(v1::Result& result, int32_t id, const std::string& bytes,
                           float logprob) {
  v1::TokenLogprob* token = result.mutable_completion()->add_logprobs();
  token->set_token(id);
  token->set_bytes(bytes);
  token->set_logprob(logprob);
  return token;
}

void AddTop(v1::TokenLogprob* token, int32_t id, const std::string& bytes, float logprob) {
  v1::TopLogprob* top = token->add_top();
  top->set_token(id);
  top->set_bytes(bytes);
  top->set_logprob(logprob);
}

v1::Result Failed(v1::RequestForm form, absl::StatusCode code, const std::string& reason,
                  const std::map<std::string, std::string>& metadata = {}) {
  v1::Result result;
  result.set_index(4);
  result.set_custom_id("row-4");
  result.set_form(form);
  result.mutable_error()->set_code(static_cast<int32_t>(code));
  result.mutable_error()->set_message("what happened");
  if (!reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.mutable_metadata()->insert(metadata.begin(), metadata.end());
    result.mutable_error()->add_details()->PackFrom(info);
  }
  return result;
}

// Lines that OpenAI's own types wrote: tests/data/make_openai_lines.py.
TEST(ResultWriterTest, LinesOfOpenAiFormsAreByteForByteAsTheirTypesWriteThem) {
  std::ifstream file(std::string(TEST_DATA_DIR) + "/openai/result_lines.json");
  const json cases = json::parse(file, nullptr, false);
  ASSERT_GE(cases.size(), 14U);
  for (const json& one : cases) {
    v1::Result result;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(one["result"].dump(), &result);
    ASSERT_TRUE(parsed.ok()) << one["name"] << ": " << parsed.ToString();
    EXPECT_EQ(ResultLine(result, Options()), one["line"].get<std::string>()) << one["name"];
  }
}

json Line(const v1::Result& result) {
  const std::string line = ResultLine(result, Options());
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  return json::parse(line, nullptr, false);
}

TEST(ResultWriterTest, AChatCompletionIsTheLineOfAnOpenAiBatch) {
  EXPECT_EQ(Line(Completed(v1::REQUEST_FORM_OPENAI_CHAT)), json::parse(R"({
    "id": "batch_req_0198c0de0000700080000000000000aa_3",
    "custom_id": "row-3",
    "response": {
      "status_code": 200,
      "request_id": "req_0198c0de0000700080000000000000aa_3",
      "body": {
        "id": "chatcmpl-0198c0de0000700080000000000000aa_3",
        "object": "chat.completion",
        "created": 1750000000,
        "model": "smollm2",
        "choices": [{"index": 0,
                     "message": {"role": "assistant", "content": " Paris", "refusal": null},
                     "logprobs": null, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6,
                  "prompt_tokens_details": {"cached_tokens": 2}}
      }
    },
    "error": null
  })"));
}

TEST(ResultWriterTest, ACompletionHasTextInItsChoice) {
  const json body = Line(Completed(v1::REQUEST_FORM_OPENAI_COMPLETION))["response"]["body"];
  EXPECT_EQ(body["id"], "cmpl-0198c0de0000700080000000000000aa_3");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"], json::parse(R"([
    {"index": 0, "text": " Paris", "logprobs": null, "finish_reason": "length"}])"));
}

TEST(ResultWriterTest, APlainResultIsFlat) {
  EXPECT_EQ(Line(Completed(v1::REQUEST_FORM_PLAIN)), json::parse(R"({
    "id": "row-3", "index": 3, "text": " Paris", "finish_reason": "length",
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6,
              "prompt_tokens_details": {"cached_tokens": 2}}
  })"));
}

TEST(ResultWriterTest, MetadataComesBackInLineOrBody) {
  const json metadata = json::parse(R"({"part": {"number": 1}})");
  v1::Result plain = Completed(v1::REQUEST_FORM_PLAIN);
  plain.set_metadata(R"({"part": {"number": 1}})");
  EXPECT_EQ(Line(plain)["metadata"], metadata);
  v1::Result chat = Completed(v1::REQUEST_FORM_OPENAI_CHAT);
  chat.set_metadata(plain.metadata());
  EXPECT_EQ(Line(chat)["response"]["body"]["metadata"], metadata);
  plain.mutable_error()->set_code(3);
  EXPECT_EQ(Line(plain)["metadata"], metadata);
  plain.set_metadata("no JSON");
  EXPECT_FALSE(Line(plain).contains("metadata"));
}

TEST(ResultWriterTest, ANativeResultIsPlainAndAnIdIsLeftOutWhenThereIsNone) {
  v1::Result result = Completed(v1::REQUEST_FORM_UNSPECIFIED);
  result.clear_custom_id();
  const json line = Line(result);
  EXPECT_FALSE(line.contains("id"));
  EXPECT_EQ(line["index"], 3);
}

TEST(ResultWriterTest, TokenIdsComeWhenAskedForAndWhenThereIsNoText) {
  ResultLineOptions options = Options();
  options.include_token_ids = true;
  const std::string asked = ResultLine(Completed(v1::REQUEST_FORM_PLAIN), options);
  EXPECT_EQ(json::parse(asked)["token_ids"], json::array({7042}));

  v1::Result without_text = Completed(v1::REQUEST_FORM_PLAIN);
  without_text.mutable_completion()->clear_text();
  EXPECT_EQ(Line(without_text)["token_ids"], json::array({7042}));
}

TEST(ResultWriterTest, ScoredChoicesAreListedWithTheBestOne) {
  v1::Result result = Completed(v1::REQUEST_FORM_PLAIN);
  v1::Completion& completion = *result.mutable_completion();
  completion.Clear();
  completion.mutable_usage()->set_prompt_tokens(9);
  completion.set_best_choice(1);
  v1::ChoiceScore* score = completion.add_choice_scores();
  score->set_text(" no");
  score->add_token_ids(7);
  score->set_logprob(-2.5);
  score->set_probability(0.25);
  *completion.add_choice_scores() = *score;
  completion.mutable_choice_scores(1)->clear_text();
  completion.mutable_choice_scores(1)->set_logprob(-std::numeric_limits<double>::infinity());
  v1::TokenLogprob* token = completion.mutable_choice_scores(1)->add_logprobs();
  token->set_token(7);
  token->set_bytes("!");
  token->set_logprob(-0.5F);
  EXPECT_EQ(Line(result), json::parse(R"({
    "id": "row-3", "index": 3,
    "choices": [
      {"index": 0, "text": " no", "logprob": -2.5, "tokens": 1, "probability": 0.25},
      {"index": 1, "text": "", "logprob": -9999.0, "tokens": 1, "probability": 0.25,
       "logprobs": [{"token": "!", "bytes": [33], "logprob": -0.5, "token_id": 7,
                     "top_logprobs": []}],
       "token_ids": [7]}],
    "best": 1,
    "usage": {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9,
              "prompt_tokens_details": {"cached_tokens": 0}}
  })"));
}

TEST(ResultWriterTest, StopReasonIsNamedInEveryForm) {
  for (const auto form : {v1::REQUEST_FORM_OPENAI_CHAT, v1::REQUEST_FORM_OPENAI_COMPLETION}) {
    v1::Result result = Completed(form);
    result.mutable_completion()->set_finish_reason(v1::FINISH_REASON_STOP);
    result.mutable_completion()->set_stop_reason("###");
    const json choice = Line(result)["response"]["body"]["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["stop_reason"], "###");
  }
  v1::Result plain = Completed(v1::REQUEST_FORM_PLAIN);
  plain.mutable_completion()->set_stop_reason("###");
  EXPECT_EQ(Line(plain)["stop_reason"], "###");
}

TEST(ResultWriterTest, ChatLogprobsListTokensWithTheirBytes) {
  v1::Result result = Completed(v1::REQUEST_FORM_OPENAI_CHAT);
  v1::TokenLogprob* token = AddToken(result, 1, " é", -0.1F);
  AddTop(token, 1, " é", -0.1F);
  AddTop(token, 2, "\xe2\x82", -2.5F);
  EXPECT_EQ(Line(result)["response"]["body"]["choices"][0]["logprobs"], json::parse(R"({
    "content": [{
      "token": " é", "logprob": -0.1, "bytes": [32, 195, 169],
      "top_logprobs": [
        {"token": " é", "logprob": -0.1, "bytes": [32, 195, 169]},
        {"token": "bytes:\\xe2\\x82", "logprob": -2.5, "bytes": [226, 130]}]
    }],
    "refusal": null
  })"));
}

TEST(ResultWriterTest, CompletionLogprobsAreParallelArraysThatHoldTheTokenItself) {
  v1::Result result = Completed(v1::REQUEST_FORM_OPENAI_COMPLETION);
  AddTop(AddToken(result, 1, "é€", -0.25F), 5, "x", -3.0F);
  AddToken(result, 2, "!", -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Line(result)["response"]["body"]["choices"][0]["logprobs"], json::parse(R"({
    "tokens": ["é€", "!"], "token_logprobs": [-0.25, -9999.0],
    "top_logprobs": [{"x": -3.0, "é€": -0.25}, {"!": -9999.0}], "text_offset": [0, 2]
  })"));
}

TEST(ResultWriterTest, PlainLogprobsHaveTokenIds) {
  v1::Result result = Completed(v1::REQUEST_FORM_PLAIN);
  AddToken(result, 17, "a", -1.5F);
  EXPECT_EQ(Line(result)["logprobs"], json::parse(R"([
    {"token": "a", "logprob": -1.5, "bytes": [97], "token_id": 17, "top_logprobs": []}])"));
}

TEST(ResultWriterTest, ALogprobReadsBackAsTheSameFloat) {
  for (const float logprob : {-0.1F, -1e-7F, -12.345678F, -103.97208F, 0.0F}) {
    v1::Result result = Completed(v1::REQUEST_FORM_PLAIN);
    AddToken(result, 1, "a", logprob);
    EXPECT_EQ(Line(result)["logprobs"][0]["logprob"].get<float>(), logprob);
  }
}

TEST(ResultWriterTest, ARefusedRequestIsAnAnswerWithStatus400) {
  EXPECT_EQ(Line(Failed(v1::REQUEST_FORM_OPENAI_CHAT, absl::StatusCode::kInvalidArgument,
                        "FIELD_INVALID", {{"code", "invalid_type"}, {"param", "max_tokens"}})),
            json::parse(R"({
    "id": "batch_req_0198c0de0000700080000000000000aa_4",
    "custom_id": "row-4",
    "response": {
      "status_code": 400,
      "request_id": "req_0198c0de0000700080000000000000aa_4",
      "body": {"error": {"message": "what happened", "type": "invalid_request_error",
                         "param": "max_tokens", "code": "invalid_type"}}
    },
    "error": null
  })"));
}

TEST(ResultWriterTest, ARequestThatTheEngineFailedIsAServerError) {
  const json response = Line(Failed(v1::REQUEST_FORM_OPENAI_COMPLETION, absl::StatusCode::kInternal,
                                    "ATTEMPTS_EXHAUSTED"))["response"];
  EXPECT_EQ(response["status_code"], 500);
  EXPECT_EQ(response["body"]["error"]["type"], "server_error");
  EXPECT_EQ(response["body"]["error"]["code"], "attempts_exhausted");
  EXPECT_EQ(response["body"]["error"]["param"], nullptr);
}

TEST(ResultWriterTest, ARequestThatNeverRanHasNoResponse) {
  struct Case {
    absl::StatusCode code;
    const char* reason;
    const char* expected;
  };
  for (const Case& test :
       {Case{absl::StatusCode::kCancelled, "JOB_CANCELLED", "batch_cancelled"},
        Case{absl::StatusCode::kCancelled, "", "batch_cancelled"},
        Case{absl::StatusCode::kDeadlineExceeded, "", "batch_expired"},
        Case{absl::StatusCode::kDeadlineExceeded, "JOB_EXPIRED", "batch_expired"},
        Case{absl::StatusCode::kFailedPrecondition, "JOB_FAILED", "batch_failed"}}) {
    const json line = Line(Failed(v1::REQUEST_FORM_OPENAI_CHAT, test.code, test.reason));
    EXPECT_EQ(line["response"], nullptr);
    EXPECT_EQ(line["error"], (json{{"code", test.expected}, {"message", "what happened"}}));
  }
}

TEST(ResultWriterTest, APlainErrorHasCodeMessageAndParam) {
  EXPECT_EQ(
      Line(Failed(v1::REQUEST_FORM_PLAIN, absl::StatusCode::kInvalidArgument, "PROMPT_TOO_LONG",
                  {{"code", "context_length_exceeded"}, {"param", "prompt"}})),
      json::parse(R"({"id": "row-4", "index": 4, "error": {
              "code": "context_length_exceeded", "message": "what happened", "param": "prompt"}})"));
  EXPECT_EQ(Line(Failed(v1::REQUEST_FORM_PLAIN, absl::StatusCode::kCancelled, "JOB_CANCELLED")),
            json::parse(R"({"id": "row-4", "index": 4, "error": {
              "code": "batch_cancelled", "message": "what happened"}})"));
}

TEST(ResultWriterTest, AnErrorWithoutDetailsIsNamedByItsCode) {
  EXPECT_EQ(
      Line(Failed(v1::REQUEST_FORM_PLAIN, absl::StatusCode::kInvalidArgument, ""))["error"]["code"],
      "invalid_argument");
}

TEST(ResultWriterTest, AnyTextIsValidJsonAndKeepsItsUtf8) {
  const std::string hard = "\"\\\n\r\t\x01\x7f \xe2\x80\xa8 é € 𝄞 </script> \0 end";
  v1::Result result = Completed(v1::REQUEST_FORM_PLAIN);
  result.mutable_completion()->set_text(hard);
  EXPECT_EQ(Line(result)["text"], hard);
  EXPECT_TRUE(absl::StrContains(ResultLine(result, Options()), "é € 𝄞"));
}

TEST(ResultWriterTest, BrokenUtf8FromAServerStillGivesJson) {
  v1::Result result = Completed(v1::REQUEST_FORM_PLAIN);
  result.mutable_completion()->set_text("a\xff\xe2\x82");
  EXPECT_EQ(Line(result)["text"], "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(ResultWriterTest, TheSameResultGivesTheSameBytes) {
  const v1::Result result = Completed(v1::REQUEST_FORM_OPENAI_CHAT);
  EXPECT_EQ(ResultLine(result, Options()), ResultLine(result, Options()));
}

void AddFurtherChoice(v1::Result& result) {
  v1::Choice& choice = *result.mutable_completion()->add_further_choices();
  choice.set_text(" Rome");
  choice.add_token_ids(9);
  choice.set_finish_reason(v1::FINISH_REASON_STOP);
  choice.set_stop_reason("!");
}

TEST(ResultWriterTest, EachChoiceHasItsIndexAndTheUsageIsOfAll) {
  v1::Result chat = Completed(v1::REQUEST_FORM_OPENAI_CHAT);
  AddFurtherChoice(chat);
  EXPECT_EQ(Line(chat)["response"]["body"]["choices"], json::parse(R"([
    {"index": 0, "message": {"role": "assistant", "content": " Paris", "refusal": null},
     "logprobs": null, "finish_reason": "length"},
    {"index": 1, "message": {"role": "assistant", "content": " Rome", "refusal": null},
     "logprobs": null, "finish_reason": "stop", "stop_reason": "!"}])"));
  v1::Result plain = Completed(v1::REQUEST_FORM_PLAIN);
  AddFurtherChoice(plain);
  EXPECT_EQ(Line(plain), json::parse(R"({
    "id": "row-3", "index": 3,
    "choices": [{"index": 0, "text": " Paris", "finish_reason": "length"},
                {"index": 1, "text": " Rome", "finish_reason": "stop", "stop_reason": "!"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6,
              "prompt_tokens_details": {"cached_tokens": 2}}})"));
}

// The prompt "<s>Zü rich" as <s>, "Z", "\xc3", "\xbc", " rich", and what follows.
v1::Result Echoed(v1::RequestForm form) {
  v1::Result result = Completed(form);
  v1::Completion& completion = *result.mutable_completion();
  completion.set_echoed_prompt("Z\xc3\xbc rich");
  for (const char* bytes : {"<s>", "Z", "\xc3", "\xbc", " rich"}) {
    v1::TokenLogprob* token = completion.add_prompt_logprobs();
    token->set_token(completion.prompt_logprobs_size());
    token->set_bytes(bytes);
    token->set_logprob(-0.5F * static_cast<float>(completion.prompt_logprobs_size() - 1));
    token->set_special(completion.prompt_logprobs_size() == 1);
    if (!token->special()) {
      AddTop(token, 70, " x", -0.25F);
    }
  }
  AddTop(AddToken(result, 7042, " Paris", -0.125F), 7042, " Paris", -0.125F);
  return result;
}

TEST(ResultWriterTest, EchoMakesTheLegacyArraysCoverThePromptWithNullFirst) {
  const json choice =
      Line(Echoed(v1::REQUEST_FORM_OPENAI_COMPLETION))["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["text"], "Z\xc3\xbc rich Paris");
  EXPECT_EQ(choice["logprobs"], json::parse(R"({
    "tokens": ["<s>", "Z", "bytes:\\xc3", "bytes:\\xbc", " rich", " Paris"],
    "token_logprobs": [null, -0.5, -1.0, -1.5, -2.0, -0.125],
    "top_logprobs": [null, {" x": -0.25, "Z": -0.5}, {" x": -0.25, "bytes:\\xc3": -1.0},
                     {" x": -0.25, "bytes:\\xbc": -1.5}, {" x": -0.25, " rich": -2.0},
                     {" Paris": -0.125}],
    "text_offset": [0, 0, 1, 2, 2, 7]})"));
}

TEST(ResultWriterTest, AScoredPromptIsEchoedAlone) {
  v1::Result result = Echoed(v1::REQUEST_FORM_OPENAI_COMPLETION);
  result.mutable_completion()->clear_logprobs();
  result.mutable_completion()->clear_text();
  const json choice = Line(result)["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["text"], "Z\xc3\xbc rich");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 5U);
  EXPECT_EQ(choice["logprobs"]["text_offset"], json::array({0, 0, 1, 2, 2}));
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST(ResultWriterTest, ThePlainFormListsTokensOfThePromptBeforeTheOthersOrApart) {
  v1::Result result = Echoed(v1::REQUEST_FORM_PLAIN);
  const json echoed = Line(result);
  EXPECT_EQ(echoed["text"], "Z\xc3\xbc rich Paris");
  ASSERT_EQ(echoed["logprobs"].size(), 6U);
  EXPECT_TRUE(echoed["logprobs"][0]["logprob"].is_null());
  EXPECT_EQ(echoed["logprobs"][5]["token_id"], 7042);
  EXPECT_FALSE(echoed.contains("prompt_logprobs"));
  result.mutable_completion()->clear_echoed_prompt();
  const json apart = Line(result);
  EXPECT_EQ(apart["text"], " Paris");
  EXPECT_EQ(apart["logprobs"].size(), 1U);
  ASSERT_EQ(apart["prompt_logprobs"].size(), 5U);
  EXPECT_TRUE(apart["prompt_logprobs"][0]["logprob"].is_null());
  EXPECT_EQ(apart["prompt_logprobs"][4]["logprob"], -2.0);
}

}  // namespace
}  // namespace nightshift
