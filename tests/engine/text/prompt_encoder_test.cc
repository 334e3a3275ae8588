// Who gets BOS, and what a chat may contain.
#include "engine/text/prompt_encoder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr int32_t kBos = 1;  // <s>

std::unique_ptr<PromptEncoder> MakeEncoder(bool add_bos, const std::string& chat_template) {
  auto spec = TokenizerSpecFromHuggingFace(ReadDataFile("tokenizers/llama3/tokenizer.json"), "");
  EXPECT_OK(spec);
  spec->bos_token = kBos;
  spec->eos_tokens = {2};
  spec->add_bos = add_bos;
  auto encoder = PromptEncoder::Create(*std::move(spec), chat_template);
  EXPECT_OK(encoder);
  return *std::move(encoder);
}

json UserMessage(const json& content) {
  return json::array({{{"role", "user"}, {"content", content}}});
}

TEST(PromptEncoderTest, PutsBosBeforeARawPromptWhenTheTokenizerAsks) {
  ASSERT_OK_AND_ASSIGN(const Ids with, MakeEncoder(true, "")->EncodePrompt("hello", {}));
  ASSERT_OK_AND_ASSIGN(const Ids without, MakeEncoder(false, "")->EncodePrompt("hello", {}));
  EXPECT_EQ(with.front(), kBos);
  EXPECT_EQ(Ids(with.begin() + 1, with.end()), without);
  ASSERT_OK_AND_ASSIGN(const Ids empty, MakeEncoder(true, "")->EncodePrompt("", {}));
  EXPECT_EQ(empty, Ids{kBos});
}

TEST(PromptEncoderTest, NeverDoublesBos) {
  const std::string content = "{{ messages[0].content }}";
  for (const std::string& source : {"{{ bos_token }}" + content, content, "<s>" + content}) {
    const auto encoder = MakeEncoder(true, source);
    ASSERT_OK_AND_ASSIGN(const Ids ids, encoder->EncodeChat(UserMessage("hello"), {}));
    EXPECT_EQ(ids.front(), kBos) << source;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), kBos), 1) << source;
  }
  const auto encoder = MakeEncoder(false, content);
  ASSERT_OK_AND_ASSIGN(const Ids ids, encoder->EncodeChat(UserMessage("hello"), {}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kBos), 0);
}

TEST(PromptEncoderTest, RecognisesSpecialTextOfACallerOnlyOnRequest) {
  const auto encoder = MakeEncoder(false, "<|im_start|>{{ messages[0].content }}<|im_end|>");
  const json messages = UserMessage("<|im_end|><|im_start|>");
  const auto count = [](const Ids& ids) {
    return std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id == 4 || id == 5; });
  };
  ASSERT_OK_AND_ASSIGN(const Ids safe, encoder->EncodeChat(messages, {}));
  EXPECT_EQ(count(safe), 2);
  ASSERT_OK_AND_ASSIGN(const Ids parsed,
                       encoder->EncodeChat(messages, {.parse_special_in_content = true}));
  EXPECT_EQ(count(parsed), 4);
  ASSERT_OK_AND_ASSIGN(const Ids prompt, encoder->EncodePrompt("<|im_end|>", {}));
  EXPECT_EQ(count(prompt), 0);
}

TEST(PromptEncoderTest, JoinsTextParts) {
  const auto encoder = MakeEncoder(false, "{{ messages[0].content }}");
  const json parts = json::parse(R"([{"type": "text", "text": "one "},
                                     {"type": "text", "text": "two"}])");
  ASSERT_OK_AND_ASSIGN(const Ids joined, encoder->EncodeChat(UserMessage(parts), {}));
  ASSERT_OK_AND_ASSIGN(const Ids plain, encoder->EncodeChat(UserMessage("one two"), {}));
  EXPECT_EQ(joined, plain);
}

TEST(PromptEncoderTest, RefusesMessagesItCannotRenderByName) {
  const auto encoder = MakeEncoder(false, "{{ messages[0].content }}");
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"[]", "messages"},
      {"{}", "messages"},
      {"null", "messages"},
      {"[5]", "messages[0]"},
      {R"([{"content": "a"}])", "messages[0].role"},
      {R"([{"role": 5, "content": "a"}])", "messages[0].role"},
      {R"([{"role": "", "content": "a"}])", "messages[0].role"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content"},
      {R"([{"role": "user", "content": [5]}])", "messages[0].content[0]"},
      {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "only parts of type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
  };
  for (const auto& [messages, message] : cases) {
    EXPECT_THAT(encoder->EncodeChat(json::parse(messages), {}),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

TEST(PromptEncoderTest, SaysWhatThePackLacks) {
  const auto encoder = MakeEncoder(false, "");
  EXPECT_FALSE(encoder->has_chat_template());
  EXPECT_THAT(encoder->EncodeChat(UserMessage("hello"), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "no chat template"));
  EXPECT_OK(encoder->EncodePrompt("hello", {}));
}

// However a golden text is cut in two.
TEST(PromptEncoderTest, AContinuationIsEncodedWithItsPromptAsOneText) {
  const auto encoder = MakeEncoder(false, "{{ messages[0].content }}");
  int cuts = 0;
  const json document = ReadDataJson("tokenizers/llama3/tokens.json");
  for (const json& one : document["cases"]) {
    const std::string text = one["text"];
    for (size_t cut = 0; cut < std::min<size_t>(text.size(), 12); ++cut) {
      const EncodeOptions options = {.parse_special_in_content = true,
                                     .continuation = text.substr(cut)};
      const std::string prompt = text.substr(0, cut);
      ASSERT_OK_AND_ASSIGN(const Ids ids, encoder->EncodePrompt(prompt, options));
      EXPECT_EQ(ids, one["ids"].get<Ids>()) << text;
      ++cuts;
    }
  }
  EXPECT_GT(cuts, 1000);
  ASSERT_OK_AND_ASSIGN(const Ids chat,
                       encoder->EncodeChat(UserMessage("hel"), {.continuation = "lo<|im_end|>"}));
  ASSERT_OK_AND_ASSIGN(const Ids whole, encoder->EncodePrompt("hello<|im_end|>", {}));
  EXPECT_EQ(chat, whole);
}

TEST(PromptEncoderTest, HandsArgumentsToTheTemplate) {
  const auto encoder = MakeEncoder(false, "{{ 'yes' if thinking else 'no' }}");
  ASSERT_OK_AND_ASSIGN(
      const Ids yes,
      encoder->EncodeChat(UserMessage("a"), {.template_arguments = {{"thinking", true}}}));
  ASSERT_OK_AND_ASSIGN(const Ids wanted, encoder->EncodePrompt("yes", {}));
  EXPECT_EQ(yes, wanted);
}

}  // namespace
}  // namespace nightshift
