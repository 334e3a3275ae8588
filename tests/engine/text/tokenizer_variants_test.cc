// The options of tokenizer.json one by one, against ids and texts made by Hugging Face's
// tokenizers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/tokenizer.h"
#include "kernels/base/utf8.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

// The base kind's file with the members of `variant` that differ.
json FileOf(const json& variant) {
  json document =
      ReadDataJson("tokenizers/" + variant["base"].get<std::string>() + "/tokenizer.json");
  for (const auto& [name, value] : variant["changes"].items()) {
    if (name == "model") {
      document["model"].update(value);
    } else {
      document[name] = value;
    }
  }
  return document;
}

class TokenizerVariantsTest : public testing::Test {
 protected:
  void SetUp() override {
    goldens_ = ReadDataJson("tokenizers/variants.json");
    ASSERT_GE(goldens_["variants"].size(), 50u);
    for (const json& variant : goldens_["variants"]) {
      ASSERT_OK_AND_ASSIGN(TokenizerSpec spec,
                           TokenizerSpecFromHuggingFace(FileOf(variant).dump(), ""));
      // Through the pack's form, so that nothing an option needs is lost there.
      ASSERT_OK_AND_ASSIGN(spec, TokenizerSpecFromJson(TokenizerSpecToJson(spec)));
      ASSERT_OK_AND_ASSIGN(auto tokenizer, Tokenizer::Create(std::move(spec)));
      tokenizers_.push_back(std::move(tokenizer));
    }
  }

  const json& Variant(size_t i) const { return goldens_["variants"][i]; }

  json goldens_;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers_;
};

TEST_F(TokenizerVariantsTest, EncodesToTheSameIds) {
  const json& texts = goldens_["texts"];
  for (size_t i = 0; i < tokenizers_.size(); ++i) {
    for (size_t k = 0; k < texts.size(); ++k) {
      const auto text = texts[k].get<std::string>();
      ASSERT_OK_AND_ASSIGN(const Ids ids,
                           tokenizers_[i]->Encode(text, {{.first = 0, .length = text.size()}}));
      EXPECT_EQ(ids, Variant(i)["encoded"][k].get<Ids>())
          << Variant(i)["name"] << " \"" << text << '"';
    }
  }
}

TEST_F(TokenizerVariantsTest, DecodesToTheSameText) {
  const json& lists = goldens_["ids"];
  for (size_t i = 0; i < tokenizers_.size(); ++i) {
    for (size_t k = 0; k < lists.size(); ++k) {
      const auto ids = lists[k].get<Ids>();
      EXPECT_EQ(tokenizers_[i]->Decode(ids, false), Variant(i)["decoded"][k].get<std::string>())
          << Variant(i)["name"] << " " << lists[k];
      EXPECT_EQ(tokenizers_[i]->Decode(ids, true),
                Variant(i)["decoded_skip_special"][k].get<std::string>())
          << Variant(i)["name"] << " " << lists[k];
    }
  }
}

TEST_F(TokenizerVariantsTest, AccumulatesTheSameTextTokenByToken) {
  const json& lists = goldens_["ids"];
  for (size_t i = 0; i < tokenizers_.size(); ++i) {
    for (size_t k = 0; k < lists.size(); ++k) {
      TextAccumulator accumulator(*tokenizers_[i]);
      for (const int32_t id : lists[k].get<Ids>()) {
        const std::string before = accumulator.text();
        accumulator.Append(id);
        EXPECT_EQ(accumulator.text().substr(0, before.size()), before);
        EXPECT_EQ(FindInvalidUtf8(accumulator.text()), std::string::npos);
      }
      accumulator.Finish();
      EXPECT_EQ(accumulator.text(), Variant(i)["decoded_skip_special"][k].get<std::string>())
          << Variant(i)["name"] << " " << lists[k];
    }
  }
}

}  // namespace
}  // namespace nightshift
