// What becomes of trust when a text changes on its way to the tokens.
#include "engine/text/text_normalizer.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using Kind = NormalizerStep::Kind;

TextNormalizer Make(const std::vector<NormalizerStep>& steps) {
  auto normalizer = TextNormalizer::Create(steps);
  EXPECT_OK(normalizer);
  return *std::move(normalizer);
}

// The normalised text with its trusted stretches in brackets.
std::string Marked(const TextNormalizer& normalizer, const std::string& text,
                   const std::vector<TextRange>& trusted) {
  const auto normalized = normalizer.Run(text, trusted);
  EXPECT_OK(normalized);
  std::string marked;
  size_t done = 0;
  for (const TextRange& range : normalized->trusted) {
    marked += normalized->text.substr(done, range.first - done);
    marked += "[" + normalized->text.substr(range.first, range.length) + "]";
    done = range.first + range.length;
  }
  return marked + normalized->text.substr(done);
}

TEST(TextNormalizerTest, TrustsWhatCameWhollyFromTrustedText) {
  struct Case {
    std::vector<NormalizerStep> steps;
    std::string text;
    std::vector<TextRange> trusted;
    std::string wanted;
  };
  const NormalizerStep nfc = {.kind = Kind::kNfc};
  const NormalizerStep nfkc = {.kind = Kind::kNfkc};
  const NormalizerStep prepend = {.kind = Kind::kPrepend, .to = "__"};
  const std::vector<Case> cases = {
      {{}, "abcd", {{1, 2}}, "a[bc]d"},
      {{}, "abcd", {{0, 4}}, "[abcd]"},
      {{}, "abcd", {}, "abcd"},
      {{{.kind = Kind::kReplace, .from = "bc", .to = "x"}}, "abcd", {{0, 2}}, "[a]xd"},
      {{{.kind = Kind::kReplace, .from = "bc", .to = "x"}}, "abcd", {{1, 2}}, "a[x]d"},
      {{{.kind = Kind::kReplace, .from = " ", .to = "_"}}, "a b", {{0, 2}}, "[a_]b"},
      {{{.kind = Kind::kReplacePattern, .from = " +", .to = "-"}}, "a  b", {{0, 2}}, "[a]-b"},
      {{{.kind = Kind::kStrip, .left = true, .right = true}}, " ab ", {{0, 2}}, "[a]b"},
      {{{.kind = Kind::kLowercase}}, "AB\xC4\xB0", {{1, 3}}, "a[bi\xCC\x87]"},
      {{prepend}, "ab", {{0, 1}}, "[__a]b"},
      {{prepend}, "ab", {{1, 1}}, "__a[b]"},
      {{prepend}, "", {}, ""},
      // A full-width sign that becomes ASCII stays what it was.
      {{nfkc}, "\xEF\xBC\x9C<", {{3, 1}}, "<[<]"},
      {{nfkc}, "\xEF\xBC\x9C<", {{0, 3}}, "[<]<"},
      // Above: e with an acute accent behind a sign does not touch it, a solidus overlay does.
      {{nfc}, ">\xC3\xA9", {{0, 1}}, "[>]\xC3\xA9"},
      {{nfc}, ">\xCC\xB8", {{0, 1}}, "\xE2\x89\xAF"},
      {{nfc}, ">\xCC\xB8", {{0, 3}}, "[\xE2\x89\xAF]"},
      {{nfkc, prepend}, "\xEF\xBC\x9Cx", {{3, 1}}, "__<[x]"},
  };
  for (const Case& example : cases) {
    EXPECT_EQ(Marked(Make(example.steps), example.text, example.trusted), example.wanted)
        << example.text;
  }
}

TEST(TextNormalizerTest, GivesTheSameTextWhateverIsTrusted) {
  const std::vector<std::string> parts = {"a",
                                          "<",
                                          ">",
                                          "\xCC\xB8",
                                          "\xCC\x81",
                                          "\xCC\xA7",
                                          "\xC3\xA9",
                                          "\xEF\xBC\x9C",
                                          "\xEF\xAC\x81",
                                          " ",
                                          "\xE1\x84\x80",
                                          "\xE1\x85\xA1"};
  std::mt19937 random(3);
  for (const Kind kind : {Kind::kNfc, Kind::kNfd, Kind::kNfkc, Kind::kNfkd, Kind::kLowercase}) {
    const TextNormalizer normalizer = Make({{.kind = kind}});
    for (int round = 0; round < 400; ++round) {
      std::string text;
      std::vector<TextRange> trusted;
      for (size_t i = random() % 12; i > 0; --i) {
        const std::string& part = parts[random() % parts.size()];
        if (random() % 2 == 0) trusted.push_back({.first = text.size(), .length = part.size()});
        text += part;
      }
      ASSERT_OK_AND_ASSIGN(const NormalizedText plain, normalizer.Run(text, {}));
      ASSERT_OK_AND_ASSIGN(const NormalizedText mixed, normalizer.Run(text, trusted));
      EXPECT_EQ(mixed.text, plain.text) << text;
    }
  }
}

TEST(TextNormalizerTest, TellsWhetherTheStartIsStillThere) {
  const TextNormalizer strip = Make({{.kind = Kind::kStrip, .left = true}});
  ASSERT_OK_AND_ASSIGN(const NormalizedText kept, strip.Run("a ", {}));
  EXPECT_TRUE(kept.keeps_start);
  ASSERT_OK_AND_ASSIGN(const NormalizedText stripped, strip.Run(" a", {}));
  EXPECT_FALSE(stripped.keeps_start);
  const TextNormalizer remove = Make({{.kind = Kind::kReplace, .from = "a"}});
  ASSERT_OK_AND_ASSIGN(const NormalizedText removed, remove.Run("ab", {}));
  EXPECT_FALSE(removed.keeps_start);
  ASSERT_OK_AND_ASSIGN(const NormalizedText inside, remove.Run("ba", {}));
  EXPECT_TRUE(inside.keeps_start);
}

}  // namespace
}  // namespace nightshift
