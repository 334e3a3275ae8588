#include "server/input/request_parser.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/input/rpc_error.h"
#include "tests/support/status_matchers.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ParsedRow ParseLine(const std::string& line, const ParseLimits& limits = {}) {
  return ParseRow(v1::INPUT_FORMAT_JSONL, line, limits);
}

std::string Chat(const std::string& fields) {
  return R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{)" + fields +
         "}}";
}
std::string Completion(const std::string& fields) {
  return R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{)" + fields + "}}";
}
std::string Hello(const std::string& more) {
  return Chat(R"("messages":[{"role":"user","content":"hello"}])" +
              (more.empty() ? "" : "," + more));
}
std::string Message(const std::string& fields) {
  return Chat(R"("messages":[{)" + fields + "}]");
}
std::string Plain(const std::string& more) {
  return R"({"prompt":"hello")" + (more.empty() ? "" : "," + more) + "}";
}

std::map<std::string, std::string> Metadata(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  const google::rpc::Status wire = ToRpcStatus(status);
  for (const auto& detail : wire.details()) {
    if (detail.UnpackTo(&info)) {
      return {info.metadata().begin(), info.metadata().end()};
    }
  }
  return {};
}

struct BadRow {
  const char* name;
  std::string line;
  const char* reason;
  const char* code;
  const char* param;
};

class BadRowTest : public ::testing::TestWithParam<BadRow> {};

TEST_P(BadRowTest, IsRefusedWithReasonCodeAndParam) {
  const BadRow& bad = GetParam();
  const ParsedRow row = ParseLine(bad.line);
  ASSERT_THAT(row.status, StatusIs(absl::StatusCode::kInvalidArgument, bad.param));
  EXPECT_EQ(ErrorReason(row.status), bad.reason) << row.status;
  EXPECT_EQ(Metadata(row.status)["code"], bad.code) << row.status;
  EXPECT_EQ(Metadata(row.status)["param"], bad.param) << row.status;
}

std::string Nested(int depth) {
  return R"({"prompt":"x","extra":)" + std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']') + "}";
}

// A member of so many choices.
std::string ManyChoices(int count) {
  std::string choices = R"("choices":["a")";
  for (int i = 1; i < count; ++i) {
    choices += R"(,"a")";
  }
  return choices + "]";
}

std::vector<BadRow> MalformedLines() {
  const char* reason = "INPUT_MALFORMED";
  const char* code = "invalid_json_line";
  return {
      {"Truncated", R"({"prompt":"x")", reason, code, ""},
      {"BareText", "hello", reason, code, ""},
      {"Array", R"(["prompt"])", reason, code, ""},
      {"Number", "17", reason, code, ""},
      {"Null", "null", reason, code, ""},
      {"TwoValues", R"({"prompt":"x"} {"prompt":"y"})", reason, code, ""},
      {"TrailingComma", R"({"prompt":"x",})", reason, code, ""},
      {"SingleQuotes", R"({'prompt':'x'})", reason, code, ""},
      {"Comment", R"({"prompt":"x"} // note)", reason, code, ""},
      {"NotANumber", R"({"prompt":"x","temperature":NaN})", reason, code, ""},
      {"NumberBeyondDouble", R"({"prompt":"x","temperature":1e400})", reason, code, ""},
      {"RawControlCharacter", "{\"prompt\":\"a\x01\"}", reason, code, ""},
      {"InvalidUtf8", "{\"prompt\":\"a\xFF\"}", reason, code, ""},
      {"OverlongUtf8", "{\"prompt\":\"\xC0\xAF\"}", reason, code, ""},
      {"SurrogateInUtf8", "{\"prompt\":\"\xED\xA0\x80\"}", reason, code, ""},
      {"CutUtf8", "{\"prompt\":\"x\",\"y\":\"\xE2\x82\"}", reason, code, ""},
      {"LoneHighSurrogate", R"({"prompt":"\ud800"})", reason, code, ""},
      {"LoneLowSurrogate", R"({"prompt":"\udc00"})", reason, code, ""},
      {"SwappedSurrogates", R"({"prompt":"\udc00\ud800"})", reason, code, ""},
      {"DeepNesting", Nested(64), reason, code, ""},
      {"VeryDeepNesting", Nested(100000), reason, code, ""},
  };
}

std::vector<BadRow> WrongEnvelopes() {
  const char* reason = "FIELD_INVALID";
  const std::string body = R"("body":{"messages":[{"role":"user","content":"x"}]})";
  const std::string url = R"("url":"/v1/chat/completions")";
  const std::string post = R"("method":"POST")";
  const auto join = [](std::vector<std::string> parts) {
    std::string line = "{";
    for (size_t i = 0; i < parts.size(); ++i) {
      line += (i == 0 ? "" : ",") + parts[i];
    }
    return line + "}";
  };
  const std::string id = R"("custom_id":"a")";
  const std::string long_id = R"("custom_id":")" + std::string(513, 'i') + "\"";
  return {
      {"NoCustomId", join({post, url, body}), reason, "invalid_custom_id", "custom_id"},
      {"EmptyCustomId", join({R"("custom_id":"")", post, url, body}), reason, "invalid_custom_id",
       "custom_id"},
      {"NumericCustomId", join({R"("custom_id":7)", post, url, body}), reason, "invalid_custom_id",
       "custom_id"},
      {"LongCustomId", join({long_id, post, url, body}), reason, "invalid_custom_id", "custom_id"},
      {"NoMethod", join({id, url, body}), reason, "missing_required_parameter", "method"},
      {"GetMethod", join({id, R"("method":"GET")", url, body}), reason, "invalid_value", "method"},
      {"NoUrl", join({id, post, body}), reason, "missing_required_parameter", "url"},
      {"Embeddings", join({id, post, R"("url":"/v1/embeddings")", body}), reason, "url_mismatch",
       "url"},
      {"NumericUrl", join({id, post, R"("url":4)", body}), reason, "url_mismatch", "url"},
      {"NoBody", join({id, post, url}), reason, "missing_required_parameter", "body"},
      {"TextBody", join({id, post, url, R"("body":"x")"}), reason, "invalid_type", "body"},
      {"PlainIdList", Plain(R"("id":[1])"), reason, "invalid_custom_id", "id"},
      {"PlainTwoIds", Plain(R"("id":"a","custom_id":"b")"), reason, "invalid_custom_id",
       "custom_id"},
      {"PlainEmptyId", Plain(R"("id":"")"), reason, "invalid_custom_id", "id"},
  };
}

std::vector<BadRow> WrongPrompts() {
  const char* reason = "FIELD_INVALID";
  const char* type = "invalid_type";
  const char* value = "invalid_value";
  const char* missing = "missing_required_parameter";
  const char* unsupported = "unsupported_parameter";
  return {
      {"NoMessages", Chat(""), reason, missing, "messages"},
      {"NullMessages", Chat(R"("messages":null)"), reason, missing, "messages"},
      {"EmptyMessages", Chat(R"("messages":[])"), reason, value, "messages"},
      {"TextMessages", Chat(R"("messages":"hi")"), reason, type, "messages"},
      {"TextMessage", Chat(R"("messages":["hi"])"), reason, type, "messages[0]"},
      {"NoRole", Message(R"("content":"x")"), reason, missing, "messages[0].role"},
      {"NumericRole", Message(R"("role":1,"content":"x")"), reason, type, "messages[0].role"},
      {"UnknownRole", Message(R"("role":"wizard","content":"x")"), reason, value,
       "messages[0].role"},
      {"ToolRole", Message(R"("role":"tool","content":"x","tool_call_id":"c")"), reason, value,
       "messages[0].role"},
      {"NoContent", Message(R"("role":"user")"), reason, missing, "messages[0].content"},
      {"NullContent", Message(R"("role":"assistant","content":null)"), reason, missing,
       "messages[0].content"},
      {"NumericContent", Message(R"("role":"user","content":4)"), reason, type,
       "messages[0].content"},
      {"NoParts", Message(R"("role":"user","content":[])"), reason, value, "messages[0].content"},
      {"ImagePart",
       Message(R"("role":"user","content":[{"type":"text","text":"x"},)"
               R"({"type":"image_url","image_url":{"url":"data:"}}])"),
       reason, unsupported, "messages[0].content[1].type"},
      {"AudioPart", Message(R"("role":"user","content":[{"type":"input_audio"}])"), reason,
       unsupported, "messages[0].content[0].type"},
      {"PartWithoutText", Message(R"("role":"user","content":[{"type":"text"}])"), reason, type,
       "messages[0].content[0].text"},
      {"BarePart", Message(R"("role":"user","content":["x"])"), reason, type,
       "messages[0].content[0]"},
      {"ToolCalls", Message(R"("role":"assistant","content":"x","tool_calls":[{"id":"c"}])"),
       reason, unsupported, "messages[0].tool_calls"},
      {"NumericName", Message(R"("role":"user","content":"x","name":3)"), reason, type,
       "messages[0].name"},
      {"PromptInChat", Hello(R"("prompt":"x")"), reason, unsupported, "prompt"},
      {"MessagesInCompletion", Completion(R"("prompt":"x","messages":[])"), reason, unsupported,
       "messages"},
      {"NoPrompt", Completion(""), reason, missing, "prompt"},
      {"PlainNothing", R"({"id":"a"})", reason, missing, "prompt"},
      {"PlainBoth", Plain(R"("messages":[])"), reason, value, "messages"},
      {"EmptyPrompt", Completion(R"("prompt":"")"), reason, value, "prompt"},
      {"NoTokens", Completion(R"("prompt":[])"), reason, value, "prompt"},
      {"NumericPrompt", Completion(R"("prompt":4)"), reason, type, "prompt"},
      {"TwoPrompts", Completion(R"("prompt":["x","y"])"), reason, unsupported, "prompt"},
      {"MixedTokens", Completion(R"("prompt":[1,"x"])"), reason, type, "prompt[1]"},
      {"FractionToken", Completion(R"("prompt":[1.5])"), reason, type, "prompt[0]"},
      {"NegativeToken", Completion(R"("prompt":[-1])"), "FIELD_OUT_OF_RANGE", value, "prompt[0]"},
      {"HugeToken", Completion(R"("prompt":[4294967296])"), "FIELD_OUT_OF_RANGE", value,
       "prompt[0]"},
      {"NumericModel", Plain(R"("model":1)"), reason, type, "model"},
      {"TemplateArguments", Hello(R"("chat_template_kwargs":[])"), reason, type,
       "chat_template_kwargs"},
      {"GenerationPrompt", Hello(R"("add_generation_prompt":"yes")"), reason, type,
       "add_generation_prompt"},
  };
}

std::string ManyBiases(int count) {
  std::string object = "{\"0\":1";
  for (int i = 1; i < count; ++i) {
    object += ",\"" + std::to_string(i) + "\":1";
  }
  return object + "}";
}

std::string ManyBadWords(int count) {
  std::string list = "[\"x\"";
  for (int i = 1; i < count; ++i) {
    list += ",[5]";
  }
  return list + "]";
}

std::vector<BadRow> WrongSampling() {
  const char* range = "FIELD_OUT_OF_RANGE";
  const char* invalid = "FIELD_INVALID";
  const char* type = "invalid_type";
  const char* value = "invalid_value";
  return {
      {"TextTemperature", Hello(R"("temperature":"hot")"), invalid, type, "temperature"},
      {"NegativeTemperature", Hello(R"("temperature":-0.1)"), range, value, "temperature"},
      {"HighTemperature", Hello(R"("temperature":2.01)"), range, value, "temperature"},
      {"ZeroTopP", Hello(R"("top_p":0)"), range, value, "top_p"},
      {"HighTopP", Hello(R"("top_p":1.1)"), range, value, "top_p"},
      {"BoolTopP", Hello(R"("top_p":true)"), invalid, type, "top_p"},
      {"NegativeTopK", Hello(R"("top_k":-2)"), range, value, "top_k"},
      {"WideTopK", Hello(R"("top_k":4294967296)"), range, value, "top_k"},
      {"FractionTopK", Hello(R"("top_k":1.5)"), invalid, type, "top_k"},
      {"ZeroMaxTokens", Hello(R"("max_tokens":0)"), range, value, "max_tokens"},
      {"NegativeMaxTokens", Hello(R"("max_completion_tokens":-3)"), range, value,
       "max_completion_tokens"},
      {"WideMaxTokens", Hello(R"("max_tokens":1e300)"), range, value, "max_tokens"},
      {"TextMaxTokens", Hello(R"("max_tokens":"16")"), invalid, type, "max_tokens"},
      {"TwoMaxTokens", Hello(R"("max_tokens":4,"max_completion_tokens":5)"), invalid, value,
       "max_completion_tokens"},
      {"TextSeed", Hello(R"("seed":"x")"), invalid, type, "seed"},
      {"HugeSeed", Hello(R"("seed":1e30)"), range, value, "seed"},
      {"NumericStop", Hello(R"("stop":5)"), invalid, type, "stop"},
      {"NumericStopItem", Hello(R"("stop":["a",5])"), invalid, type, "stop[1]"},
      {"EmptyStop", Hello(R"("stop":"")"), range, value, "stop[0]"},
      {"ManyStops",
       Hello(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14",)"
             R"("15","16","17"])"),
       range, value, "stop"},
      {"NegativeStopToken", Hello(R"("stop_token_ids":[-1])"), range, value, "stop_token_ids[0]"},
      {"TextStopToken", Hello(R"("stop_token_ids":["a"])"), invalid, type, "stop_token_ids[0]"},
      {"CountInChatLogprobs", Hello(R"("logprobs":3)"), invalid, type, "logprobs"},
      {"BoolInCompletionLogprobs", Completion(R"("prompt":"x","logprobs":true)"), invalid, type,
       "logprobs"},
      {"ManyLogprobs", Completion(R"("prompt":"x","logprobs":21)"), range, value, "logprobs"},
      {"ManyTopLogprobs", Hello(R"("logprobs":true,"top_logprobs":21)"), range, value,
       "top_logprobs"},
      {"TopWithoutLogprobs", Hello(R"("top_logprobs":2)"), invalid, value, "top_logprobs"},
      {"HighMinP", Hello(R"("min_p":1.5)"), range, value, "min_p"},
      {"NegativeMinP", Hello(R"("min_p":-0.1)"), range, value, "min_p"},
      {"ZeroRepetition", Hello(R"("repetition_penalty":0)"), range, value, "repetition_penalty"},
      {"HugeRepetition", Hello(R"("repetition_penalty":1e300)"), range, value,
       "repetition_penalty"},
      {"TextRepetition", Hello(R"("repetition_penalty":"1")"), invalid, type, "repetition_penalty"},
      {"HighPresence", Hello(R"("presence_penalty":2.5)"), range, value, "presence_penalty"},
      {"LowFrequency", Hello(R"("frequency_penalty":-2.5)"), range, value, "frequency_penalty"},
      {"ListBias", Hello(R"("logit_bias":[1,2])"), invalid, type, "logit_bias"},
      {"TextBiasKey", Hello(R"("logit_bias":{"hello":1})"), invalid, value, "logit_bias"},
      {"NegativeBiasKey", Hello(R"("logit_bias":{"-5":1})"), invalid, value, "logit_bias"},
      {"SecondWayToWriteABiasKey", Hello(R"("logit_bias":{"007":1})"), invalid, value,
       "logit_bias"},
      {"WideBiasKey", Hello(R"("logit_bias":{"2147483648":1})"), invalid, value, "logit_bias"},
      {"TextBias", Hello(R"("logit_bias":{"5":"x"})"), invalid, type, "logit_bias.5"},
      {"HighBias", Hello(R"("logit_bias":{"5":1,"6":100.5,"7":-1e300})"), range, value,
       "logit_bias.6"},
      {"ManyBiases", Hello("\"logit_bias\":" + ManyBiases(1025)), range, value, "logit_bias"},
      {"TextBadWords", Hello(R"("bad_words":"x")"), invalid, type, "bad_words"},
      {"NumericBadWord", Hello(R"("bad_words":["x",5])"), invalid, type, "bad_words[1]"},
      {"EmptyBadWord", Hello(R"("bad_words":["x",""])"), range, value, "bad_words[1]"},
      {"EmptyBadTokens", Hello(R"("bad_words":[[]])"), range, value, "bad_words[0]"},
      {"NegativeBadToken", Hello(R"("bad_words":[[4,-1]])"), range, value, "bad_words[0]"},
      {"WideBadToken", Hello(R"("bad_words":[[4294967296]])"), range, value, "bad_words[0][0]"},
      {"LongBadWord", Hello(R"("bad_words":[")" + std::string(1025, 'x') + "\"]"), range, value,
       "bad_words[0]"},
      {"ManyBadWords", Hello("\"bad_words\":" + ManyBadWords(257)), range, value, "bad_words"},
      {"NegativeMinTokens", Hello(R"("min_tokens":-1)"), range, value, "min_tokens"},
      {"FractionMinTokens", Hello(R"("min_tokens":0.5)"), invalid, type, "min_tokens"},
      {"NumericIgnoreEos", Hello(R"("ignore_eos":1)"), invalid, type, "ignore_eos"},
      {"NoChoices", Hello(R"("n":0)"), range, value, "n"},
      {"ManyChoices", Hello(R"("n":17)"), range, value, "n"},
      {"WideChoices", Hello(R"("n":4294967297)"), range, value, "n"},
      {"EchoInChat", Hello(R"("echo":true)"), invalid, "unsupported_parameter", "echo"},
      {"EchoOfMessages", R"({"messages":[{"role":"user","content":"x"}],"echo":true})", invalid,
       "unsupported_parameter", "echo"},
      {"TextEcho", Completion(R"("prompt":"x","echo":"yes")"), invalid, type, "echo"},
      {"PromptLogprobsInCompletion", Completion(R"("prompt":"x","prompt_logprobs":1)"), invalid,
       "unsupported_parameter", "prompt_logprobs"},
      {"ManyPromptLogprobs", Plain(R"("prompt_logprobs":21)"), range, value, "prompt_logprobs"},
      {"PromptLogprobsBesideEcho", Plain(R"("prompt_logprobs":1,"echo":true)"), invalid, value,
       "prompt_logprobs"},
      {"NoScoredChoices", Plain(R"("choices":[])"), range, value, "choices"},
      {"ManyScoredChoices", Plain(ManyChoices(129)), range, value, "choices"},
      {"ChoicesNoList", Plain(R"("choices":" yes")"), invalid, type, "choices"},
      {"ChoiceOfNumber", Plain(R"("choices":["a",7])"), invalid, type, "choices[1]"},
      {"EmptyChoice", Plain(R"("choices":["a",""])"), range, value, "choices[1]"},
      {"EmptyChoiceOfIds", Plain(R"("choices":[[]])"), range, value, "choices[0]"},
      {"NegativeIdOfChoice", Plain(R"("choices":[[3,-1]])"), range, value, "choices[0][1]"},
      {"LongChoice", Plain(R"("choices":[")" + std::string(65537, 'x') + R"("])"), range, value,
       "choices[0]"},
      {"ChoicesBesideMaxTokens", Plain(R"("choices":["a"],"max_tokens":1)"), invalid, value,
       "max_tokens"},
      {"ChoicesBesideN", Plain(R"("choices":["a"],"n":2,"temperature":1)"), invalid, value, "n"},
      {"ChoicesBesideEcho", Plain(R"("choices":["a"],"echo":true)"), invalid, value, "echo"},
      {"ChoicesBesidePromptLogprobs", Plain(R"("choices":["a"],"prompt_logprobs":0)"), invalid,
       value, "prompt_logprobs"},
      {"ChoicesInCompletion", Completion(R"("prompt":"x","choices":["a"])"), invalid,
       "unsupported_parameter", "choices"},
      {"ChoicesInChat", Hello(R"("choices":["a"])"), invalid, "unsupported_parameter", "choices"},
      {"TopInCompletion", Completion(R"("prompt":"x","top_logprobs":2)"), invalid,
       "unsupported_parameter", "top_logprobs"},
  };
}

std::vector<BadRow> UnsupportedFields() {
  const std::map<const char*, const char*> fields = {
      {"tools", R"([{"type":"function"}])"},
      {"tool_choice", R"("auto")"},
      {"functions", R"([{"name":"f"}])"},
      {"function_call", R"("auto")"},
      {"response_format", R"({"type":"json_object"})"},
      {"modalities", R"(["text","audio"])"},
      {"audio", R"({"voice":"v"})"},
      {"stream", "true"},
      {"best_of", "3"},
      {"suffix", R"("end")"},
      {"guided_json", "{}"},
      {"truncate_prompt_tokens", "100"},
      {"chat_template", R"("x")"},
      {"reasoning_effort", R"("low")"},
      {"use_beam_search", "true"},
  };
  std::vector<BadRow> rows;
  for (const auto& [name, value] : fields) {
    rows.push_back({name, Plain("\"" + std::string(name) + "\":" + value), "FIELD_INVALID",
                    "unsupported_parameter", name});
  }
  return rows;
}

std::string NameOf(const ::testing::TestParamInfo<BadRow>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Malformed, BadRowTest, ::testing::ValuesIn(MalformedLines()), NameOf);
INSTANTIATE_TEST_SUITE_P(Envelope, BadRowTest, ::testing::ValuesIn(WrongEnvelopes()), NameOf);
INSTANTIATE_TEST_SUITE_P(Prompt, BadRowTest, ::testing::ValuesIn(WrongPrompts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Sampling, BadRowTest, ::testing::ValuesIn(WrongSampling()), NameOf);
INSTANTIATE_TEST_SUITE_P(Unsupported, BadRowTest, ::testing::ValuesIn(UnsupportedFields()), NameOf);

TEST(RequestParserTest, ReadsAChatRow) {
  const ParsedRow row = ParseLine(
      R"({"custom_id":"doc-1","method":"POST","url":"/v1/chat/completions","body":{"model":"m",)"
      R"("messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],)"
      R"("max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"seed":11,"stop":["a","b"],)"
      R"("stop_token_ids":[2],"logprobs":true,"top_logprobs":3}})");
  ASSERT_OK(row.status);
  EXPECT_EQ(row.model, "m");
  EXPECT_EQ(row.request.custom_id(), "doc-1");
  EXPECT_EQ(row.request.form(), v1::REQUEST_FORM_OPENAI_CHAT);
  ASSERT_EQ(row.request.chat().messages_size(), 2);
  EXPECT_EQ(row.request.chat().messages(0).role(), "system");
  EXPECT_EQ(row.request.chat().messages(1).content(), "Hi");
  const v1::SamplingOptions& sampling = row.request.sampling();
  EXPECT_EQ(sampling.max_output_tokens(), 7);
  EXPECT_EQ(sampling.temperature(), 0.5);
  EXPECT_EQ(sampling.top_p(), 0.9);
  EXPECT_EQ(sampling.top_k(), 40);
  EXPECT_EQ(sampling.seed(), 11);
  EXPECT_THAT(sampling.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids(), ElementsAre(2));
  EXPECT_TRUE(sampling.logprobs());
  EXPECT_EQ(sampling.top_logprobs(), 3);
}

TEST(RequestParserTest, ReadsACompletionRowWithText) {
  const ParsedRow row = ParseLine(Completion(R"("prompt":"once","logprobs":0,"stop":"end")"));
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.form(), v1::REQUEST_FORM_OPENAI_COMPLETION);
  EXPECT_EQ(row.request.prompt(), "once");
  EXPECT_TRUE(row.request.sampling().logprobs());
  EXPECT_EQ(row.request.sampling().top_logprobs(), 0);
  EXPECT_THAT(row.request.sampling().stop(), ElementsAre("end"));
}

TEST(RequestParserTest, ReadsTokenIdsAsPrompt) {
  const ParsedRow flat = ParseLine(Completion(R"("prompt":[1,2,3])"));
  ASSERT_OK(flat.status);
  EXPECT_THAT(flat.request.tokens().ids(), ElementsAre(1, 2, 3));
  const ParsedRow nested = ParseLine(Completion(R"("prompt":[[4,5]])"));
  ASSERT_OK(nested.status);
  EXPECT_THAT(nested.request.tokens().ids(), ElementsAre(4, 5));
  EXPECT_OK(ParseLine(Completion(R"("prompt":["one"])")).status);
}

TEST(RequestParserTest, ReadsPlainRows) {
  const ParsedRow text = ParseLine(R"({"id":"x","prompt":"p","max_tokens":3})");
  ASSERT_OK(text.status);
  EXPECT_EQ(text.request.form(), v1::REQUEST_FORM_PLAIN);
  EXPECT_EQ(text.request.custom_id(), "x");
  EXPECT_EQ(text.request.prompt(), "p");
  const ParsedRow chat = ParseLine(R"({"messages":[{"role":"user","content":"q"}]})");
  ASSERT_OK(chat.status);
  EXPECT_EQ(chat.request.custom_id(), "");
  EXPECT_EQ(chat.request.chat().messages_size(), 1);
  EXPECT_EQ(ParseLine(R"({"id":-7,"prompt":"p"})").request.custom_id(), "-7");
}

TEST(RequestParserTest, ReadsPenaltiesBansAndLengths) {
  const ParsedRow row = ParseLine(Hello(
      R"("min_p":0.25,"repetition_penalty":1.5,"presence_penalty":0.5,"frequency_penalty":-0.5,)"
      R"("logit_bias":{"50256":-100,"7":1.5},"bad_words":["bad",[4,5]],"min_tokens":3,)"
      R"("max_tokens":9,"ignore_eos":true,"n":2,"temperature":1)"));
  ASSERT_OK(row.status);
  EXPECT_EQ(row.ignored_fields, 0);
  const v1::SamplingOptions& sampling = row.request.sampling();
  EXPECT_EQ(sampling.min_p(), 0.25);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5);
  EXPECT_EQ(sampling.presence_penalty(), 0.5);
  EXPECT_EQ(sampling.frequency_penalty(), -0.5);
  ASSERT_EQ(sampling.logit_bias_size(), 2);
  EXPECT_EQ(sampling.logit_bias().at(50256), -100.0);
  EXPECT_EQ(sampling.logit_bias().at(7), 1.5);
  ASSERT_EQ(sampling.bad_words_size(), 2);
  EXPECT_EQ(sampling.bad_words(0).text(), "bad");
  EXPECT_THAT(sampling.bad_words(1).tokens().ids(), ElementsAre(4, 5));
  EXPECT_EQ(sampling.min_output_tokens(), 3);
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_EQ(sampling.num_choices(), 2);
  EXPECT_OK(ParseLine(Hello("\"logit_bias\":" + ManyBiases(1024))).status);
  EXPECT_OK(ParseLine(Hello("\"bad_words\":" + ManyBadWords(256))).status);
}

TEST(RequestParserTest, ReadsWhatIsAskedOfThePrompt) {
  const ParsedRow scored =
      ParseLine(Completion(R"("prompt":"x","echo":true,"logprobs":1,"max_tokens":0)"));
  ASSERT_OK(scored.status);
  EXPECT_TRUE(scored.request.echo());
  EXPECT_EQ(scored.request.sampling().max_output_tokens(), 0);
  const ParsedRow plain = ParseLine(Plain(R"("prompt_logprobs":0,"max_tokens":0)"));
  ASSERT_OK(plain.status);
  EXPECT_TRUE(plain.request.has_prompt_logprobs());
  EXPECT_OK(ParseLine(Hello(R"("echo":false)")).status);
}

TEST(RequestParserTest, ReadsChoicesThatAreScored) {
  const ParsedRow row = ParseLine(Plain(R"("choices":[" yes",[5,6]],"logprobs":true)"));
  ASSERT_OK(row.status);
  ASSERT_EQ(row.request.choices_size(), 2);
  EXPECT_EQ(row.request.choices(0).text(), " yes");
  EXPECT_EQ(row.request.choices(1).tokens().ids(1), 6);
  EXPECT_EQ(row.ignored_fields, 0);
  EXPECT_OK(ParseLine(Plain(ManyChoices(128) + R"(,"max_tokens":0)")).status);
  EXPECT_OK(ParseLine(R"({"messages":[{"role":"user","content":"x"}],"choices":["a"]})").status);
}

TEST(RequestParserTest, TheOptionBoundsTheChoicesOfARow) {
  ParseLimits limits;
  limits.max_choices = 3;
  EXPECT_OK(ParseLine(Hello(R"("n":3)"), limits).status);
  EXPECT_THAT(ParseLine(Hello(R"("n":4)"), limits).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "n: is 4, must be 1 to 3"));
}

TEST(RequestParserTest, LeavesAbsentSamplingToTheJob) {
  const ParsedRow row = ParseLine(Hello(R"("temperature":null)"));
  ASSERT_OK(row.status);
  EXPECT_FALSE(row.request.sampling().has_temperature());
  EXPECT_FALSE(row.request.sampling().has_max_output_tokens());
  EXPECT_FALSE(row.request.sampling().has_seed());
}

TEST(RequestParserTest, TakesFieldsThatAskForNothing) {
  EXPECT_OK(ParseLine(Hello(R"("n":1,"stream":false,"tools":[],"tool_choice":"none",)"
                            R"("response_format":{"type":"text"},"logit_bias":{},"min_p":0,)"
                            R"("presence_penalty":0,"frequency_penalty":0.0,"top_k":-1,)"
                            R"("suffix":null,"user":"u","store":true,"metadata":{"a":"b"})"))
                .status);
}

TEST(RequestParserTest, CountsFieldsNobodyReads) {
  const ParsedRow row = ParseLine(Plain(R"("label":"news","score":1,"user":"u")"));
  ASSERT_OK(row.status);
  EXPECT_EQ(row.ignored_fields, 2);
}

TEST(RequestParserTest, TakesTheLastOfDuplicateKeys) {
  const ParsedRow row = ParseLine(R"({"prompt":{"a":[1]},"prompt":"first","prompt":"last"})");
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.prompt(), "last");
}

TEST(RequestParserTest, JoinsTextPartsByNewlines) {
  const ParsedRow row = ParseLine(Message(
      R"("role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}])"));
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.chat().messages(0).content(), "a\nb");
}

TEST(RequestParserTest, TreatsDeveloperAsSystem) {
  const ParsedRow row = ParseLine(Message(R"("role":"developer","content":"x")"));
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.chat().messages(0).role(), "system");
}

TEST(RequestParserTest, ReadsSeedsOf64Bits) {
  EXPECT_EQ(ParseLine(Hello(R"("seed":18446744073709551615)")).request.sampling().seed(),
            UINT64_MAX);
  EXPECT_EQ(ParseLine(Hello(R"("seed":-1)")).request.sampling().seed(), UINT64_MAX);
}

TEST(RequestParserTest, TakesWholeNumbersWrittenAsFractions) {
  EXPECT_EQ(ParseLine(Hello(R"("max_tokens":16.0)")).request.sampling().max_output_tokens(), 16);
}

TEST(RequestParserTest, ReadsEscapesAndNulCharacters) {
  const ParsedRow row = ParseLine(R"({"prompt":"\u0041\u0000\ud83d\ude00"})");
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.prompt(), std::string("A\0\xF0\x9F\x98\x80", 6));
}

TEST(RequestParserTest, KeepsTemplateArgumentsInTheirOrder) {
  const std::string arguments =
      R"({"z":{"b":[1,{"y":null,"x":-2.50}],"a":"\u00e9\n\"q\""},"m":9007199254740993,"e":{},"l":[]})";
  const std::string written =
      "{\"z\":{\"b\":[1,{\"y\":null,\"x\":-2.50}],\"a\":\"\xC3\xA9\\n\\\"q\\\"\"},"
      "\"m\":9007199254740993,\"e\":{},\"l\":[]}";
  for (const std::string& line : {Hello(R"("chat_template_kwargs":)" + arguments),
                                  Plain(R"("chat_template_kwargs":)" + arguments)}) {
    const ParsedRow row = ParseLine(line);
    ASSERT_OK(row.status);
    EXPECT_EQ(row.request.prompt_options().chat_template_kwargs(), written);
  }
}

TEST(RequestParserTest, TakesTheLastOfSeveralTemplateArguments) {
  const std::string twice = R"("chat_template_kwargs":{"a":1},"chat_template_k\u0077args":{"b":2})";
  const ParsedRow row = ParseLine(Hello(twice));
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.prompt_options().chat_template_kwargs(), R"({"b":2})");
}

TEST(RequestParserTest, RefusesTemplateArgumentsThatAreLargeOrReplaceTheServers) {
  EXPECT_THAT(ParseLine(Hello(R"("chat_template_kwargs":{"messages":[]})")).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "chat_template_kwargs: template arguments cannot replace messages"));
  const std::string large = std::string(70'000, 'x');
  EXPECT_THAT(ParseLine(Hello(R"("chat_template_kwargs":{"a":")" + large + "\"}")).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "at most 65536"));
  v1::InferenceRequest request;
  request.set_prompt("x");
  request.mutable_prompt_options()->set_chat_template_kwargs("[1]");
  EXPECT_THAT(ParseRow(v1::INPUT_FORMAT_PROTO, request.SerializeAsString(), {}).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "must be an object"));
}

TEST(RequestParserTest, TellsIdAndFormOfARefusedRow) {
  const ParsedRow row = ParseLine(Completion(R"("prompt":4)"));
  EXPECT_FALSE(row.status.ok());
  EXPECT_EQ(row.request.custom_id(), "a");
  EXPECT_EQ(row.request.form(), v1::REQUEST_FORM_OPENAI_COMPLETION);
}

TEST(RequestParserTest, NamesTheByteOfInvalidUtf8AndNeverTheText) {
  const ParsedRow row = ParseLine("{\"prompt\":\"canary\xFF\"}");
  EXPECT_THAT(row.status, StatusIs(absl::StatusCode::kInvalidArgument, "invalid UTF-8 at byte 17"));
  EXPECT_THAT(row.status.ToString(), Not(HasSubstr("canary")));
}

TEST(RequestParserTest, BoundsLineValuesAndPrompt) {
  ParseLimits limits;
  limits.max_line_bytes = 64;
  EXPECT_THAT(ParseLine(Plain("\"x\":\"" + std::string(64, 'y') + "\""), limits).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "longer than the limit of 64"));
  limits.max_json_values = 4;
  EXPECT_THAT(ParseLine(R"({"prompt":[1,2,3,4]})", limits).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "more than 4 JSON values"));
  limits.max_prompt_bytes = 3;
  const ParsedRow row = ParseLine(R"({"prompt":"four"})", limits);
  EXPECT_EQ(ErrorReason(row.status), "PROMPT_TOO_LONG");
}

TEST(RequestParserTest, KeepsMetadataInItsOrderAlsoOfRefusedRows) {
  const std::string metadata = R"("metadata":{"z":1,"a":{"b":[2]}})";
  for (const ParsedRow& row :
       {ParseLine(Hello(metadata)), ParseLine(Plain(metadata)),
        ParseLine(Plain(metadata + R"(,"temperature":9)")), ParseLine(R"({)" + metadata + "}")}) {
    EXPECT_EQ(row.request.metadata(), R"({"z":1,"a":{"b":[2]}})");
  }
  EXPECT_THAT(ParseLine(Plain(R"("metadata":"text")")).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "metadata: must be an object, is string"));
  const std::string large(kMaxMetadataBytes, 'x');
  EXPECT_THAT(ParseLine(Plain(R"("metadata":{"a":")" + large + "\"}")).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "metadata: has 16392 bytes, at most 16384"));
}

TEST(RequestParserTest, WhatTheCallerCouldNotMakeARequestOfIsTheRowsError) {
  const ParsedRow row = ParseLine(
      R"({"id":"a.txt","metadata":{"k":1},"error":{"code":"document_empty","message":"no text"}})");
  EXPECT_EQ(row.status.message(), "no text");
  EXPECT_EQ(ErrorReason(row.status), reason::kCallersError);
  EXPECT_EQ(Metadata(row.status)["code"], "document_empty");
  EXPECT_EQ(row.request.custom_id(), "a.txt");
  EXPECT_EQ(row.request.metadata(), R"({"k":1})");
  EXPECT_THAT(ParseLine(R"({"id":"a","error":{"code":"c"}})").status,
              StatusIs(absl::StatusCode::kInvalidArgument, "error: must have a code and a message"));
  EXPECT_THAT(ParseLine(R"({"id":"a","error":"c"})").status,
              StatusIs(absl::StatusCode::kInvalidArgument, "error: must be an object, is string"));
  EXPECT_OK(ParseLine(Plain(R"("error":null)")).status);
}

TEST(RequestParserTest, ReadsProtoRows) {
  v1::InferenceRequest request;
  request.set_custom_id("a");
  request.set_prompt("hello");
  const ParsedRow row = ParseRow(v1::INPUT_FORMAT_PROTO, request.SerializeAsString(), {});
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.prompt(), "hello");
}

TEST(RequestParserTest, ChecksProtoRowsLikeLines) {
  const auto reason_of = [](const v1::InferenceRequest& request) {
    return ErrorReason(ParseRow(v1::INPUT_FORMAT_PROTO, request.SerializeAsString(), {}).status);
  };
  v1::InferenceRequest request;
  EXPECT_EQ(reason_of(request), "FIELD_INVALID");
  request.set_prompt("bad \xFF");
  EXPECT_EQ(reason_of(request), "INPUT_MALFORMED");
  request.set_prompt("fine");
  request.mutable_sampling()->set_temperature(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_min_p(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.clear_sampling();
  (*request.mutable_sampling()->mutable_logit_bias())[5] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.clear_sampling();
  (*request.mutable_sampling()->mutable_logit_bias())[-5] = 1.0;
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.clear_sampling();
  request.mutable_sampling()->add_bad_words()->set_text("bad \xFF");
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.clear_sampling();
  request.mutable_sampling()->set_max_output_tokens(0);
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.clear_sampling();
  request.mutable_tokens()->add_ids(-1);
  EXPECT_EQ(reason_of(request), "FIELD_OUT_OF_RANGE");
  request.mutable_chat()->add_messages()->set_role("wizard");
  EXPECT_EQ(reason_of(request), "FIELD_INVALID");
  EXPECT_EQ(ErrorReason(ParseRow(v1::INPUT_FORMAT_PROTO, "\xFF\xFF", {}).status),
            "INPUT_MALFORMED");
}

}  // namespace
}  // namespace nightshift
