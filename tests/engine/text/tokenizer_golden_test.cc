// Tokenizers of the kinds that real families use, against ids made by Hugging Face's tokenizers.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/character_fallback.h"
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

// The same vocabulary as a GGUF file holds it: a token's score is minus the rank of the first merge
// that makes it, as SentencePiece numbers them.
GgufTokenizerMetadata AsGguf(const json& document) {
  GgufTokenizerMetadata metadata;
  metadata.model = "llama";
  const json& merges = document["model"]["merges"];
  size_t size = document["model"]["vocab"].size();
  for (const json& token : document["added_tokens"])
    size = std::max(size, token["id"].get<size_t>() + 1);
  metadata.tokens.resize(size);
  metadata.token_types.resize(size, 1);
  metadata.scores.resize(size, -static_cast<double>(merges.size()));
  std::map<std::string, double> scores;
  for (const json& merge : merges) {
    scores.emplace(merge[0].get<std::string>() + merge[1].get<std::string>(),
                   -static_cast<double>(scores.size()));
  }
  for (const auto& [text, id] : document["model"]["vocab"].items()) {
    const auto i = id.get<size_t>();
    metadata.tokens[i] = text;
    if (ByteOfToken(text) >= 0) metadata.token_types[i] = 6;
    if (const auto score = scores.find(text); score != scores.end()) {
      metadata.scores[i] = score->second;
    }
  }
  for (const json& token : document["added_tokens"]) {
    const auto i = token["id"].get<size_t>();
    metadata.tokens[i] = token["content"].get<std::string>();
    metadata.token_types[i] = token["special"].get<bool>() ? 3 : 4;
  }
  return metadata;
}

// GGUF cannot say that an added token swallows spaces or stands alone.
bool NeedsOptionsOfAddedTokens(const std::string& text) {
  return text.find("<left>") != std::string::npos || text.find("<right>") != std::string::npos ||
         text.find("<word>") != std::string::npos;
}

TEST(GgufTokenizerGoldenTest, EncodesAndDecodesAsTheTokenizerJsonThatItWasMadeOf) {
  for (const char* kind : {"llama2", "gemma"}) {
    const std::string folder = std::string("tokenizers/") + kind + "/";
    GgufTokenizerMetadata metadata = AsGguf(ReadDataJson(folder + "tokenizer.json"));
    metadata.add_space_prefix = std::string(kind) == "llama2";
    ASSERT_OK_AND_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(metadata));
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
    const json cases = ReadDataJson(folder + "tokens.json")["cases"];
    size_t compared = 0;
    for (const json& example : cases) {
      const auto text = example["text"].get<std::string>();
      const auto wanted = example["ids"].get<std::vector<int32_t>>();
      if (NeedsOptionsOfAddedTokens(text)) continue;
      ++compared;
      ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                           tokenizer->Encode(text, {{.first = 0, .length = text.size()}}));
      EXPECT_EQ(ids, wanted) << kind << " " << example["name"] << " " << text;
      EXPECT_EQ(tokenizer->Decode(wanted, false), example["decoded"].get<std::string>())
          << kind << " " << example["name"];
    }
    EXPECT_EQ(compared, 269u);
  }
}

}  // namespace
}  // namespace nightshift
