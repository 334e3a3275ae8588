// Tokenizers of the kinds that real families use, against ids made by Hugging Face's tokenizers.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using nlohmann::json;

class TokenizerGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Folder() const { return std::string("tokenizers/") + GetParam() + "/"; }

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(TokenizerSpec spec,
                         TokenizerSpecFromHuggingFace(ReadDataFile(Folder() + "tokenizer.json"),
                                                      /*tokenizer_config_json=*/""));
    // Through the pack's form, so that nothing a case needs is lost there.
    ASSERT_OK_AND_ASSIGN(spec, TokenizerSpecFromJson(TokenizerSpecToJson(spec)));
    ASSERT_OK_AND_ASSIGN(tokenizer_, Tokenizer::Create(std::move(spec)));
    cases_ = ReadDataJson(Folder() + "tokens.json")["cases"];
    ASSERT_EQ(cases_.size(), 272u);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  json cases_;
};

TEST_P(TokenizerGoldenTest, EncodesAllCasesToTheSameIds) {
  for (const json& example : cases_) {
    const auto text = example["text"].get<std::string>();
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                         tokenizer_->Encode(text, {{.first = 0, .length = text.size()}}));
    EXPECT_EQ(ids, example["ids"].get<std::vector<int32_t>>()) << example["name"] << " " << text;
  }
}

TEST_P(TokenizerGoldenTest, DecodesAllCasesToTheSameText) {
  for (const json& example : cases_) {
    const auto ids = example["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->Decode(ids, false), example["decoded"].get<std::string>())
        << example["name"];
    EXPECT_EQ(tokenizer_->Decode(ids, true), example["decoded_skip_special"].get<std::string>())
        << example["name"];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGoldenTest,
                         testing::Values("gpt2", "llama3", "qwen2", "digits", "llama2",
                                         "mistral_metaspace", "gemma"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace nightshift
