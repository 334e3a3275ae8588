// Trust, broken and hostile text, and the accumulation of generated tokens.
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/text/character_fallback.h"
#include "kernels/base/utf8.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr int32_t kTurnEnd = 5;  // <|im_end|> in all kinds
constexpr int32_t kNormalizedSpecial = 1404;

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& kind) {
  const std::string text = ReadDataFile("tokenizers/" + kind + "/tokenizer.json");
  auto spec = TokenizerSpecFromHuggingFace(text, "");
  EXPECT_OK(spec);
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

int CountTurnEnds(const Ids& ids) {
  return static_cast<int>(std::count(ids.begin(), ids.end(), kTurnEnd));
}

TEST(TokenizerTest, MakesSpecialTokensOnlyWhollyInsideTrustedRanges) {
  const auto tokenizer = MakeTokenizer("gpt2");
  const std::string text = "<|im_end|><|im_end|>";
  const std::vector<std::pair<std::vector<TextRange>, int>> cases = {
      {{}, 0},       {{{0, 20}}, 2}, {{{0, 10}}, 1},        {{{10, 10}}, 1},
      {{{0, 9}}, 0}, {{{1, 19}}, 1}, {{{0, 5}, {5, 5}}, 0}, {{{0, 10}, {12, 8}}, 1},
  };
  for (const auto& [trusted, wanted] : cases) {
    ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, trusted));
    EXPECT_EQ(CountTurnEnds(ids), wanted);
    EXPECT_EQ(tokenizer->Decode(ids, false), text);
  }
}

// A kind with the special token <S>, which is found in normalised text (NFKC).
std::unique_ptr<Tokenizer> WithNormalizedSpecial() {
  json document = ReadDataJson("tokenizers/mistral_metaspace/tokenizer.json");
  document["added_tokens"].push_back(
      {{"id", kNormalizedSpecial}, {"content", "<S>"}, {"special", true}, {"normalized", true}});
  auto spec = TokenizerSpecFromHuggingFace(document.dump(), "");
  EXPECT_OK(spec);
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

TEST(TokenizerTest, MakesSpecialTokensOnlyOfTrustedTextAlsoBehindTheNormalizer) {
  const auto tokenizer = WithNormalizedSpecial();
  const std::string wide = "\xEF\xBC\x9CS\xEF\xBC\x9E";  // becomes <S>
  struct Case {
    std::string text;
    std::vector<TextRange> trusted;
    int wanted;
  };
  const std::vector<Case> cases = {
      {"<S>", {}, 0},
      {"<S>", {{0, 3}}, 1},
      {"<S>", {{0, 2}}, 0},
      {"<S>", {{1, 2}}, 0},
      {"a<S>b<S>", {{1, 3}}, 1},
      {"a<S>b<S>", {{1, 7}}, 2},
      {wide, {}, 0},
      {wide, {{0, 7}}, 1},
      {wide, {{0, 4}}, 0},
      {"<S\xEF\xBC\x9E", {{0, 2}}, 0},
      {"<S>\xC3\xA9", {{0, 3}}, 1},  // an accented letter behind it is another's
      {"<S>\xCC\xB8", {{0, 3}}, 0},  // an overlay would change the token itself
      {"\xEF\xBC\xA1<S>\xEF\xBC\xA1", {{3, 3}}, 1},
  };
  for (const Case& example : cases) {
    ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(example.text, example.trusted));
    EXPECT_EQ(std::count(ids.begin(), ids.end(), kNormalizedSpecial), example.wanted)
        << example.text;
  }
}

// The lattice knows </s> as a token, too.
TEST(TokenizerTest, NeverMakesASpecialTokenByTheUnigramModel) {
  const auto tokenizer = MakeTokenizer("unigram");
  const std::string text = "a</s><s><unk><|im_end|>";
  ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, {}));
  for (const int32_t id : ids)
    EXPECT_TRUE(!tokenizer->IsSpecial(id) || id == tokenizer->spec().unknown_token) << id;
  ASSERT_OK_AND_ASSIGN(const Ids trusted, tokenizer->Encode(text, {{0, text.size()}}));
  EXPECT_GE(std::count_if(trusted.begin(), trusted.end(),
                          [&](int32_t id) { return tokenizer->IsSpecial(id); }),
            4);
}

TEST(TokenizerTest, FindsOtherAddedTokensInAnyText) {
  const auto tokenizer = MakeTokenizer("qwen2");
  ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode("tab<added>tab", {}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1400), 1);
}

TEST(TokenizerTest, NamesTheOffsetOfInvalidUtf8) {
  const auto tokenizer = MakeTokenizer("gpt2");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xFF", "byte 0"},       {"abc\x80", "byte 3"},      {"é\xC3", "byte 2"},
      {"\xC0\x80", "byte 0"},   {"\xED\xA0\x80", "byte 0"}, {"a\xF4\x90\x80\x80", "byte 1"},
      {"ab\xE2\x82", "byte 2"}, {"\xE0\x80\x80", "byte 0"},
  };
  for (const auto& [text, place] : cases) {
    EXPECT_THAT(tokenizer->Encode(text, {}), StatusIs(absl::StatusCode::kInvalidArgument, place));
  }
}

TEST(TokenizerTest, TellsHowManyTokensATextHasAtLeast) {
  const auto tokenizer = MakeTokenizer("gpt2");
  int64_t longest = 0;
  for (int32_t id = 0; id < 1404; ++id) {
    longest = std::max(longest, static_cast<int64_t>(tokenizer->TokenBytes(id).size()));
  }
  EXPECT_EQ(tokenizer->LeastTokens(7 * longest), 7);
  EXPECT_EQ(tokenizer->LeastTokens(7 * longest - 1), 6);
}

TEST(TokenizerTest, PromisesNoTokensWhereOneMayStandForAnything) {
  EXPECT_EQ(MakeTokenizer("unigram")->LeastTokens(1 << 20), 0);
  EXPECT_GT(MakeTokenizer("unigram_bytes")->LeastTokens(1 << 20), 0);
  EXPECT_GT(MakeTokenizer("llama2")->LeastTokens(1 << 20), 0);
}

TEST(TokenizerTest, GivesTheBytesThatATokenAddsToAText) {
  const auto tokenizer = MakeTokenizer("llama2");
  ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode("a\xE2\x82\xAC b", {}));
  std::string bytes;
  for (const int32_t id : ids)
    bytes += std::string(tokenizer->TokenBytes(id));
  EXPECT_EQ(bytes, " a\xE2\x82\xAC b");
  EXPECT_EQ(tokenizer->TokenBytes(kTurnEnd), "<|im_end|>");
}

TEST(TokenizerTest, HoldsARunOfByteTokensBackUntilItEnds) {
  const auto tokenizer = MakeTokenizer("llama2");
  std::vector<int32_t> byte_ids(256, -1);
  int32_t letter = -1;
  for (int32_t id = 0; id < 1400; ++id) {
    const auto& token = tokenizer->spec().tokens[static_cast<size_t>(id)];
    if (ByteOfToken(token) >= 0) byte_ids[static_cast<size_t>(ByteOfToken(token))] = id;
    if (token == "a") letter = id;
  }
  TextAccumulator accumulator(*tokenizer);
  accumulator.Append(byte_ids[0xC3]);
  accumulator.Append(byte_ids[0xA9]);
  EXPECT_EQ(accumulator.text(), "");
  EXPECT_TRUE(accumulator.has_pending());
  accumulator.Append(letter);
  EXPECT_EQ(accumulator.text(),
            "\xC3\xA9"
            "a");
  EXPECT_FALSE(accumulator.has_pending());
  // One byte too many spoils the whole run.
  accumulator.Append(byte_ids[0xC3]);
  accumulator.Append(byte_ids[0xA9]);
  accumulator.Append(byte_ids[0xA9]);
  accumulator.Finish();
  EXPECT_EQ(accumulator.text(),
            "\xC3\xA9"
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TokenizerTest, HasNoBytesForIdsOutOfRange) {
  const auto tokenizer = MakeTokenizer("gpt2");
  for (const int32_t id : {-1, 1404, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
  EXPECT_EQ(tokenizer->TokenBytes(kTurnEnd), "<|im_end|>");
  EXPECT_TRUE(tokenizer->IsSpecial(kTurnEnd));
  EXPECT_EQ(tokenizer->Decode({70, -5, 99999, 71}, false), "ab");
}

// Quadratic merging, or ordering of combining marks, takes hours here.
TEST(TokenizerTest, EncodesMegabytesOfOnePreToken) {
  const std::vector<std::pair<std::string, std::vector<const char*>>> cases = {
      {"gpt2", {"a", "-"}},
      {"qwen2", {" ", "\xCC\x81\xCC\xA7"}},
      {"llama2", {"a", " ", "\xE2\x96\x81"}},
      {"mistral_metaspace", {"\xCC\x81\xCC\xA7"}},
      {"unigram", {"a", "\xF0\x9F\x98\x80"}},
  };
  for (const auto& [kind, units] : cases) {
    const auto tokenizer = MakeTokenizer(kind);
    for (const char* unit : units) {
      std::string text;
      while (text.size() < (1u << 20))
        text += unit;
      ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, {}));
      EXPECT_GE(static_cast<int64_t>(ids.size()),
                tokenizer->LeastTokens(static_cast<int64_t>(text.size())));
      if (kind == "gpt2") {
        EXPECT_EQ(tokenizer->Decode(ids, false), text);
      }
    }
  }
}

TEST(TokenizerTest, AccumulatesTheTextThatDecodingTheWholeGives) {
  const auto tokenizer = MakeTokenizer("gpt2");
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Ids ids(random() % 24);
    for (int32_t& id : ids)
      id = static_cast<int32_t>(random() % 262);  // special and single bytes
    TextAccumulator accumulator(*tokenizer);
    for (const int32_t id : ids) {
      const size_t before = accumulator.text().size();
      accumulator.Append(id);
      EXPECT_EQ(FindInvalidUtf8(accumulator.text()), std::string::npos);
      EXPECT_GE(accumulator.text().size(), before);
    }
    accumulator.Finish();
    EXPECT_EQ(accumulator.text(), tokenizer->Decode(ids, true));
    EXPECT_EQ(FindInvalidUtf8(accumulator.text()), std::string::npos);
  }
}

TEST(TokenizerTest, HoldsACharacterBackUntilItsLastByte) {
  const auto tokenizer = MakeTokenizer("gpt2");
  std::vector<int32_t> byte_ids(256, -1);
  for (int32_t id = 0; id < 1400; ++id) {
    const auto bytes = tokenizer->TokenBytes(id);
    if (bytes.size() == 1) byte_ids[static_cast<uint8_t>(bytes[0])] = id;
  }
  TextAccumulator accumulator(*tokenizer);
  const std::string emoji = "\xF0\x9F\x98\x80";
  for (size_t i = 0; i < emoji.size(); ++i) {
    EXPECT_EQ(accumulator.text(), "");
    accumulator.Append(byte_ids[static_cast<uint8_t>(emoji[i])]);
  }
  EXPECT_EQ(accumulator.text(), emoji);
  accumulator.Append(byte_ids[0xF0]);
  EXPECT_EQ(accumulator.text(), emoji);
  accumulator.Finish();
  EXPECT_EQ(accumulator.text(), emoji + "\xEF\xBF\xBD");
}

TEST(TokenizerTest, EncodesRandomTextWithoutLoss) {
  std::mt19937 random(11);
  for (const char* kind : {"gpt2", "llama3", "digits"}) {
    const auto tokenizer = MakeTokenizer(kind);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      const size_t length = random() % 40;
      for (size_t i = 0; i < length; ++i) {
        auto c = static_cast<char32_t>(random() % (round % 2 == 0 ? 0x80 : 0x11000));
        if (c >= 0xD800 && c < 0xE000) c = ' ';
        AppendCharacter(c, text);
      }
      ASSERT_OK_AND_ASSIGN(const Ids ids, tokenizer->Encode(text, {}));
      EXPECT_EQ(tokenizer->Decode(ids, false), text);
    }
  }
}

}  // namespace
}  // namespace nightshift
