#include "server/input/result_builder.h"

#include <gtest/gtest.h>

#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

v1::Result Parse(const std::string& body) {
  v1::Result result;
  EXPECT_TRUE(result.ParseFromString(body));
  return result;
}

const ResultHeader kHeader = {
    .index = 4, .line = 5, .custom_id = "x", .form = v1::REQUEST_FORM_OPENAI_CHAT};

TEST(ResultBuilderTest, BuildsACompletion) {
  CompletionOutcome outcome;
  outcome.choices = {
      {.text = "text",
       .kept = {{.token = 7, .logprob = -0.5F, .top = {{.token = 8, .logprob = -1.5F}}}},
       .end_token = {},
       .finish_reason = FinishReason::kStop,
       .stop_reason = "END"}};
  outcome.want_logprobs = true;
  outcome.output_tokens = 2;
  outcome.cached_tokens = 1;
  outcome.seed = 9;
  const v1::Result result = Parse(BuildCompletionResult(kHeader, outcome, nullptr));
  EXPECT_EQ(result.seq(), 0);
  EXPECT_EQ(result.index(), 4);
  EXPECT_EQ(result.line(), 5);
  EXPECT_EQ(result.custom_id(), "x");
  EXPECT_EQ(result.form(), v1::REQUEST_FORM_OPENAI_CHAT);
  const v1::Completion& completion = result.completion();
  EXPECT_EQ(completion.text(), "text");
  EXPECT_EQ(completion.token_ids(0), 7);
  EXPECT_EQ(completion.logprobs(0).top(0).logprob(), -1.5F);
  EXPECT_EQ(completion.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(completion.stop_reason(), "END");
  EXPECT_EQ(completion.usage().output_tokens(), 2);
  EXPECT_EQ(completion.usage().cached_tokens(), 1);
  EXPECT_EQ(completion.seed(), 9U);
}

TEST(ResultBuilderTest, LeavesLogprobsOutUnlessAsked) {
  CompletionOutcome outcome;
  outcome.choices.resize(1);
  outcome.choices[0].kept = {{.token = 7, .top = {}}};
  const v1::Result result = Parse(BuildCompletionResult(kHeader, outcome, nullptr));
  EXPECT_EQ(result.completion().token_ids_size(), 1);
  EXPECT_EQ(result.completion().logprobs_size(), 0);
}

TEST(ResultBuilderTest, KeepsFurtherChoicesAndWhatWasAskedOfThePrompt) {
  CompletionOutcome outcome;
  outcome.choices.resize(3);
  outcome.choices[0].text = "a";
  outcome.choices[2] = {.text = "c",
                        .kept = {{.token = 7, .top = {}}},
                        .end_token = {},
                        .finish_reason = FinishReason::kLength,
                        .stop_reason = {}};
  outcome.want_logprobs = true;
  outcome.prompt_logprobs = {{.token = 1, .top = {}}, {.token = 2, .logprob = -0.25F, .top = {}}};
  outcome.echoed_prompt = "";
  const v1::Completion completion =
      Parse(BuildCompletionResult(kHeader, outcome, nullptr)).completion();
  EXPECT_EQ(completion.text(), "a");
  ASSERT_EQ(completion.further_choices_size(), 2);
  EXPECT_EQ(completion.further_choices(1).text(), "c");
  EXPECT_EQ(completion.further_choices(1).token_ids(0), 7);
  EXPECT_EQ(completion.further_choices(1).logprobs(0).token(), 7);
  EXPECT_EQ(completion.further_choices(1).finish_reason(), v1::FINISH_REASON_LENGTH);
  ASSERT_EQ(completion.prompt_logprobs_size(), 2);
  EXPECT_EQ(completion.prompt_logprobs(1).logprob(), -0.25F);
  EXPECT_TRUE(completion.has_echoed_prompt());
}

TEST(ResultBuilderTest, TellsHowLikelyChoicesAreHoweverUnlikelyAll) {
  CompletionOutcome outcome;
  const TokenLogprob rare = {.token = 7, .logprob = -900.0F, .top = {}};
  outcome.scored = {{.text = "a", .kept = {rare, {.token = 8, .logprob = -2.0F, .top = {}}}},
                    {.text = "b", .kept = {rare}}};
  const v1::Completion plain = Parse(BuildCompletionResult(kHeader, outcome, nullptr)).completion();
  ASSERT_EQ(plain.choice_scores_size(), 2);
  EXPECT_EQ(plain.choice_scores(0).text(), "a");
  EXPECT_EQ(plain.choice_scores(0).logprob(), -902.0);
  EXPECT_NEAR(plain.choice_scores(0).probability(), 0.11920292202211755, 1e-12);
  EXPECT_NEAR(plain.choice_scores(1).probability(), 0.8807970779778823, 1e-12);
  EXPECT_EQ(plain.best_choice(), 1);
  EXPECT_EQ(plain.choice_scores(0).logprobs_size(), 0);
  outcome.want_logprobs = true;
  const v1::Completion told = Parse(BuildCompletionResult(kHeader, outcome, nullptr)).completion();
  EXPECT_EQ(told.choice_scores(0).logprobs(1).logprob(), -2.0F);
}

TEST(ResultBuilderTest, AnIdThatIsNotUtf8DoesNotMakeTheRecordUnreadable) {
  ResultHeader header = kHeader;
  header.custom_id = "a\xFF";
  EXPECT_EQ(Parse(BuildErrorResult(header, absl::InternalError(""))).custom_id(), "a?");
}

TEST(ResultBuilderTest, BuildsAnErrorWithItsDetails) {
  const v1::Result result = Parse(BuildErrorResult(
      kHeader, MakeError(absl::StatusCode::kInvalidArgument, reason::kInputMalformed, "line 5")));
  EXPECT_EQ(result.error().code(), 3);
  EXPECT_EQ(result.error().details_size(), 1);
}

}  // namespace
}  // namespace nightshift
