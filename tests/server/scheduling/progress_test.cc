#include "server/scheduling/progress.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

RequestProgress MakeProgress(bool has_logprobs) {
  RequestProgress progress;
  progress.model_digest = "digest";
  progress.numeric_mode = "f32/device";
  progress.has_logprobs = has_logprobs;
  progress.choices.resize(2);
  progress.choices[1].end = ChoiceEnd{.finish_reason = FinishReason::kLength,
                                      .stop_reason = "why",
                                      .text = "\xc3\xa4",
                                      .kept_tokens = 1};
  progress.choices[1].generated = {{.token = 9, .top = {}}};
  progress.prompt_logprobs = {{.token = 3, .top = {}}, {.token = 4, .logprob = -3.0F, .top = {}}};
  progress.choices[0].generated = {
      {.token = 5, .logprob = -0.125F, .top = {{.token = 6, .logprob = -2.5F}}},
      {.token = 1 << 30, .logprob = -1e-30F, .top = {}}};
  return progress;
}

TEST(ProgressTest, ComesBackToTheBit) {
  const auto parsed = ParseProgress(SerializeProgress(MakeProgress(true)));
  ASSERT_OK(parsed);
  EXPECT_EQ(parsed->model_digest, "digest");
  EXPECT_EQ(parsed->numeric_mode, "f32/device");
  ASSERT_EQ(parsed->choices[0].generated.size(), 2U);
  EXPECT_EQ(parsed->choices[0].generated[0].token, 5);
  EXPECT_EQ(parsed->choices[0].generated[0].logprob, -0.125F);
  EXPECT_EQ(parsed->choices[0].generated[0].top[0].logprob, -2.5F);
  EXPECT_EQ(parsed->choices[0].generated[1].token, 1 << 30);
  EXPECT_EQ(parsed->choices[0].generated[1].logprob, -1e-30F);
  EXPECT_FALSE(parsed->choices[0].end.has_value());
  ASSERT_EQ(parsed->choices.size(), 2U);
  EXPECT_EQ(parsed->choices[1].generated[0].token, 9);
  ASSERT_TRUE(parsed->choices[1].end.has_value());
  EXPECT_EQ(parsed->choices[1].end->finish_reason, FinishReason::kLength);
  EXPECT_EQ(parsed->choices[1].end->stop_reason, "why");
  EXPECT_EQ(parsed->choices[1].end->text, "\xc3\xa4");
  EXPECT_EQ(parsed->choices[1].end->kept_tokens, 1);
  ASSERT_EQ(parsed->prompt_logprobs.size(), 2U);
  EXPECT_EQ(parsed->prompt_logprobs[1].logprob, -3.0F);
}

// Written by hand: digest "d", mode "m", one token 7 without logprobs.
TEST(ProgressTest, ReadsVersion1) {
  const std::string bytes("P1\0\1\0\0\0d\1\0\0\0m\1\0\0\0\7\0\0\0", 21);
  ASSERT_OK_AND_ASSIGN(const RequestProgress progress, ParseProgress(bytes));
  EXPECT_EQ(progress.model_digest, "d");
  EXPECT_EQ(progress.numeric_mode, "m");
  ASSERT_EQ(progress.choices.size(), 1U);
  EXPECT_EQ(progress.choices[0].generated[0].token, 7);
  EXPECT_FALSE(progress.choices[0].end.has_value());
}

TEST(ProgressTest, RefusesMoreKeptTokensThanThereAre) {
  RequestProgress progress = MakeProgress(false);
  progress.choices[1].end->kept_tokens = 2;
  EXPECT_THAT(ParseProgress(SerializeProgress(progress)),
              StatusIs(absl::StatusCode::kDataLoss, "keeps 2 of 1"));
}

TEST(ProgressTest, KeepsIdsAloneWhenLogprobsAreNotWanted) {
  const std::string bytes = SerializeProgress(MakeProgress(false));
  const auto parsed = ParseProgress(bytes);
  ASSERT_OK(parsed);
  EXPECT_EQ(parsed->choices[0].generated[0].token, 5);
  EXPECT_TRUE(parsed->choices[0].generated[0].top.empty());
  EXPECT_LT(bytes.size(), SerializeProgress(MakeProgress(true)).size());
}

TEST(ProgressTest, RefusesEveryTruncation) {
  for (const bool has_logprobs : {false, true}) {
    const std::string bytes = SerializeProgress(MakeProgress(has_logprobs));
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_THAT(ParseProgress(bytes.substr(0, length)),
                  StatusIs(absl::StatusCode::kDataLoss, "progress"))
          << length;
    }
  }
}

TEST(ProgressTest, RefusesCountsBeyondTheBytesAndBytesBehindTheEnd) {
  std::string bytes = SerializeProgress(
      {.model_digest = "", .numeric_mode = "", .prompt_logprobs = {}, .choices = {}});
  EXPECT_THAT(ParseProgress(bytes + "x"), StatusIs(absl::StatusCode::kDataLoss, "behind its end"));
  bytes.replace(bytes.size() - 4, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_THAT(ParseProgress(bytes), StatusIs(absl::StatusCode::kDataLoss, "counts"));
  bytes[1] = '9';
  EXPECT_THAT(ParseProgress(bytes), StatusIs(absl::StatusCode::kDataLoss, "version"));
}

}  // namespace
}  // namespace nightshift
