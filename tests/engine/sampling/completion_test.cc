#include "engine/sampling/completion.h"

#include <utility>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int32_t kEnd = 0;    // special
constexpr int32_t kOther = 1;  // special

// A vocabulary of whole strings: id i + 2 is texts[i].
std::unique_ptr<Tokenizer> VocabularyOf(const std::vector<std::string>& texts) {
  TokenizerSpec spec;
  spec.tokens = {"<end>", "<other>"};
  spec.tokens.insert(spec.tokens.end(), texts.begin(), texts.end());
  for (int32_t id : {kEnd, kOther}) {
    AddedToken token;
    token.id = id;
    token.text = spec.tokens[static_cast<size_t>(id)];
    token.special = true;
    spec.added_tokens.push_back(token);
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_OK(tokenizer);
  return std::move(tokenizer).value();
}

StopRules Rules(std::vector<std::string> stop_strings, int64_t max_output_tokens = 100) {
  return {.stop_tokens = {},
          .model_end_tokens = {kEnd},
          .stop_strings = std::move(stop_strings),
          .max_output_tokens = max_output_tokens};
}

// Appends tokens 2, 3, ... of `texts` until the completion ends.
std::optional<Ending> RunTexts(const std::vector<std::string>& texts, const StopRules& rules) {
  const std::unique_ptr<Tokenizer> tokenizer = VocabularyOf(texts);
  Completion completion(tokenizer.get(), rules);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (std::optional<Ending> ending = completion.Append(static_cast<int32_t>(i) + 2)) {
      return ending;
    }
  }
  return std::nullopt;
}

struct StopCase {
  const char* name;
  std::vector<std::string> texts;
  std::vector<std::string> stops;
  std::string text;
  int64_t kept_tokens;
  std::string fired;
};

class StopStringTest : public testing::TestWithParam<StopCase> {};

TEST_P(StopStringTest, CutsTextAndTokensTogether) {
  const StopCase& one = GetParam();
  const std::optional<Ending> ending = RunTexts(one.texts, Rules(one.stops));
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kStop);
  EXPECT_EQ(ending->text, one.text);
  EXPECT_EQ(ending->kept_tokens, one.kept_tokens);
  EXPECT_EQ(ending->stop_reason, one.fired);
}

INSTANTIATE_TEST_SUITE_P(
    All, StopStringTest,
    testing::Values(
        StopCase{"WholeToken", {"ab", "STOP"}, {"STOP"}, "ab", 1, "STOP"},
        StopCase{"FirstToken", {"STOP"}, {"STOP"}, "", 0, "STOP"},
        StopCase{"InsideToken", {"ab", "cSTOPd"}, {"STOP"}, "abc", 1, "STOP"},
        StopCase{"AcrossTwoTokens", {"ab", "cST", "OPd"}, {"STOP"}, "abc", 1, "STOP"},
        StopCase{"OneByteATok", {"a", "S", "T", "O", "P"}, {"STOP"}, "a", 1, "STOP"},
        StopCase{"FalseStart", {"ST", "ST", "OP"}, {"STOP"}, "ST", 1, "STOP"},
        StopCase{"SelfOverlap", {"aab", "aa", "c"}, {"abaac"}, "a", 0, "abaac"},
        StopCase{"FirstInTextWins", {"xAyB"}, {"B", "A"}, "x", 0, "A"},
        StopCase{"FirstListedOfSameStart", {"xAB"}, {"AB", "A"}, "x", 0, "AB"},
        StopCase{"FirstToComplete", {"x", "A", "B"}, {"AB", "A"}, "x", 1, "A"},
        StopCase{"NewLines", {"one\n", "\ntwo"}, {"\n\n"}, "one", 0, "\n\n"},
        StopCase{"EmptyTokenBefore", {"ab", "", "X"}, {"X"}, "ab", 2, "X"},
        StopCase{"AfterUtf8", {"\xc3", "\xa4", "X"}, {"X"}, "\xc3\xa4", 2, "X"},
        StopCase{"SplitUtf8Stop", {"a", "\xc3", "\xa4"}, {"\xc3\xa4"}, "a", 1, "\xc3\xa4"},
        StopCase{"BrokenByteBefore", {"a", "\xc3", "X"}, {"X"}, "a\xef\xbf\xbd", 2, "X"},
        StopCase{"TokenEndsInsideCharacter",
                 {"a\xe2", "\x82\xac", "X"},
                 {"\xe2\x82\xac"},
                 "a",
                 0,
                 "\xe2\x82\xac"}),
    [](const testing::TestParamInfo<StopCase>& one) { return one.param.name; });

TEST(CompletionTest, GoesOnWithoutAStop) {
  EXPECT_FALSE(RunTexts({"ab", "ST", "O", "x"}, Rules({"STOP"})).has_value());
}

TEST(CompletionTest, EndsAtTheModelsEndTokenWithoutKeepingIt) {
  const std::unique_ptr<Tokenizer> tokenizer = VocabularyOf({"ab"});
  Completion completion(tokenizer.get(), Rules({}));
  EXPECT_FALSE(completion.Append(2).has_value());
  EXPECT_FALSE(completion.Append(kOther).has_value());
  const std::optional<Ending> ending = completion.Append(kEnd);
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kStop);
  EXPECT_EQ(ending->stop_reason, "");
  EXPECT_EQ(ending->text, "ab");
  EXPECT_EQ(ending->kept_tokens, 2);
}

TEST(CompletionTest, NamesTheStopTokenThatFired) {
  const std::unique_ptr<Tokenizer> tokenizer = VocabularyOf({"ab", "cd"});
  StopRules rules = Rules({});
  rules.stop_tokens = {3};
  Completion completion(tokenizer.get(), rules);
  EXPECT_FALSE(completion.Append(2).has_value());
  const std::optional<Ending> ending = completion.Append(3);
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kStop);
  EXPECT_EQ(ending->stop_reason, "3");
  EXPECT_EQ(ending->text, "ab");
  EXPECT_EQ(ending->kept_tokens, 1);
}

TEST(CompletionTest, EndsByLengthWithValidTextOfAllTokens) {
  const std::optional<Ending> ending = RunTexts({"ab", "\xe2\x82"}, Rules({"X"}, 2));
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kLength);
  EXPECT_EQ(ending->stop_reason, "");
  EXPECT_EQ(ending->text, "ab\xef\xbf\xbd");
  EXPECT_EQ(ending->kept_tokens, 2);
}

TEST(CompletionTest, AStopOnTheLastAllowedTokenIsAStop) {
  const std::optional<Ending> ending = RunTexts({"ab", "X"}, Rules({"X"}, 2));
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kStop);
}

TEST(CompletionTest, CountsTokensWithoutATokenizer) {
  Completion completion(nullptr, Rules({}, 2));
  EXPECT_FALSE(completion.Append(5).has_value());
  const std::optional<Ending> ending = completion.Append(6);
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kLength);
  EXPECT_EQ(ending->text, "");
  EXPECT_EQ(ending->kept_tokens, 2);
}

TEST(CompletionTest, NothingEndsBeforeTheLeastLengthButLength) {
  StopRules rules = Rules({"X"}, 5);
  rules.stop_tokens = {3};
  rules.min_output_tokens = 2;
  // A stop string, a stop token and the model's end within the first two tokens do not count.
  EXPECT_FALSE(RunTexts({"aX", "b", "c"}, rules).has_value());
  const std::unique_ptr<Tokenizer> tokenizer = VocabularyOf({"a", "b", "Xc"});
  Completion completion(tokenizer.get(), rules);
  EXPECT_FALSE(completion.Append(kEnd).has_value());
  EXPECT_FALSE(completion.Append(3).has_value());
  const std::optional<Ending> ending = completion.Append(4);
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->reason, FinishReason::kStop);
  EXPECT_EQ(ending->text, "b");
}

TEST(CompletionTest, AStopStringMayBeginBeforeTheLeastLengthAndEndBehindIt) {
  StopRules rules = Rules({"XYZ"}, 9);
  rules.min_output_tokens = 2;
  const std::optional<Ending> ending = RunTexts({"a", "bX", "YZ"}, rules);
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->text, "ab");
  EXPECT_EQ(ending->kept_tokens, 1);
}

}  // namespace
}  // namespace nightshift
