#include "engine/sampling/logit_adjuster.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::ElementsAre;

constexpr float kBanned = -std::numeric_limits<float>::infinity();

MATCHER_P(Bans, token, "") {
  return arg.token == token && arg.bias == kBanned;
}

MATCHER_P3(Changes, token, repetition, penalty, "") {
  return arg.token == token && arg.bias == 0.0F && arg.repetition == repetition &&
         arg.penalty == penalty;
}

std::vector<LogitAdjustment> After(const SamplingParams& params, const std::vector<int32_t>& prompt,
                                   const std::vector<int32_t>& output) {
  LogitAdjuster adjuster(params, {2, 9}, prompt);
  for (const int32_t token : output) {
    adjuster.Append(token);
  }
  const std::span<const LogitAdjustment> next = adjuster.Next();
  return {next.begin(), next.end()};
}

TEST(LogitAdjusterTest, ChangesNothingUnlessAsked) {
  EXPECT_THAT(After({}, {5, 6}, {7, 7}), ElementsAre());
}

TEST(LogitAdjusterTest, RepetitionIsOfPromptAndOutput) {
  SamplingParams params;
  params.repetition_penalty = 1.5F;
  EXPECT_THAT(After(params, {6, 5, 6}, {4, 6}),
              ElementsAre(Changes(4, 1.5F, 0.0F), Changes(5, 1.5F, 0.0F), Changes(6, 1.5F, 0.0F)));
}

TEST(LogitAdjusterTest, PresenceAndFrequencyAreOfTheOutputAlone) {
  SamplingParams params;
  params.presence_penalty = 0.5F;
  params.frequency_penalty = 0.25F;
  EXPECT_THAT(After(params, {5, 6}, {6, 1, 6, 6}),
              ElementsAre(Changes(1, 1.0F, 0.75F), Changes(6, 1.0F, 1.25F)));
}

TEST(LogitAdjusterTest, BansWhatEndsUntilTheLeastLength) {
  SamplingParams params;
  params.min_output_tokens = 2;
  EXPECT_THAT(After(params, {5}, {}), ElementsAre(Bans(2), Bans(9)));
  EXPECT_THAT(After(params, {5}, {4}), ElementsAre(Bans(2), Bans(9)));
  EXPECT_THAT(After(params, {5}, {4, 4}), ElementsAre());
}

TEST(LogitAdjusterTest, BansTheLastTokenOfABadWordOnlyBehindItsOthersInTheOutput) {
  SamplingParams params;
  params.bad_words = {{3, 4, 1}, {4, 8}, {7}};
  EXPECT_THAT(After(params, {3, 4}, {}), ElementsAre(Bans(7)));
  EXPECT_THAT(After(params, {3}, {4}), ElementsAre(Bans(7), Bans(8)));
  EXPECT_THAT(After(params, {5}, {3, 4}), ElementsAre(Bans(1), Bans(7), Bans(8)));
  EXPECT_THAT(After(params, {5}, {3, 4, 5}), ElementsAre(Bans(7)));
}

TEST(LogitAdjusterTest, ABanReplacesWhatElseATokenHas) {
  SamplingParams params;
  params.logit_bias = {{9, 50.0F}, {1, -2.0F}};
  params.repetition_penalty = 2.0F;
  params.min_output_tokens = 3;
  const std::vector<LogitAdjustment> next = After(params, {9}, {1, 2});
  ASSERT_EQ(next.size(), 3U);
  EXPECT_EQ(next[0].token, 1);
  EXPECT_EQ(next[0].bias, -2.0F);
  EXPECT_EQ(next[0].repetition, 2.0F);
  EXPECT_THAT(next[1], Bans(2));
  EXPECT_THAT(next[2], Bans(9));
}

TEST(LogitAdjusterTest, BiasesOfOneTokenAddUp) {
  SamplingParams params;
  params.logit_bias = {{3, 1.0F}, {3, 0.5F}};
  EXPECT_EQ(After(params, {}, {})[0].bias, 1.5F);
}

}  // namespace
}  // namespace nightshift
