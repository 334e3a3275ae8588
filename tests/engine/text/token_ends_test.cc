// Ends of tokens, for tokenizers that keep the text, put a space before it, or normalize it.
#include "engine/text/token_ends.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/tokenizer_spec.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& kind) {
  auto spec = TokenizerSpecFromHuggingFace(
      ReadDataFile("tokenizers/" + kind + "/tokenizer.json"), "");
  EXPECT_OK(spec);
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

TEST(TokenEndsTest, ATextUpToATokensEndIsWhatItsTokensSpell) {
  const std::string text = "The quick brown fox, \u00fcber 12 lazy dogs.\n\nAnd \u20ac 5 more!";
  for (const char* kind : {"gpt2", "mistral_metaspace"}) {
    const auto tokenizer = MakeTokenizer(kind);
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode(text, {}));
    const std::vector<size_t> ends = TokenEnds(*tokenizer, text, ids);
    ASSERT_EQ(ends.size(), ids.size()) << kind;
    EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
    EXPECT_EQ(ends.back(), text.size());
    size_t begin = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string part = text.substr(begin, ends[i] - begin);
      const std::string bytes(tokenizer->TokenBytes(ids[i]));
      EXPECT_TRUE(part == bytes || " " + part == bytes) << kind << " token " << i;
      begin = ends[i];
    }
  }
}

TEST(TokenEndsTest, WhereTokensDoNotSpellTheTextTheRestIsSharedOut) {
  const auto tokenizer = MakeTokenizer("gpt2");
  ASSERT_OK_AND_ASSIGN(std::vector<int32_t> ids, tokenizer->Encode("one two", {}));
  ASSERT_GE(ids.size(), 2U);
  const std::vector<size_t> ends = TokenEnds(*tokenizer, "ONE TWO", ids);
  ASSERT_EQ(ends.size(), ids.size());
  EXPECT_EQ(ends.front(), 7 / ids.size());
  EXPECT_EQ(ends.back(), 7U);
  EXPECT_TRUE(TokenEnds(*tokenizer, "", {}).empty());
}

}  // namespace
}  // namespace nightshift
