#include "engine/sampling/sampling_params.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

SamplingParams With(void (*change)(SamplingParams&)) {
  SamplingParams params;
  change(params);
  return params;
}

TEST(SamplingParamsTest, DefaultsAreValid) {
  EXPECT_OK(SamplingParams().Validate());
}

TEST(SamplingParamsTest, AcceptsTheEndsOfEachRange) {
  EXPECT_OK(With([](SamplingParams& p) { p.temperature = 0.0F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.temperature = 1e-6F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.temperature = 100.0F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.top_logprobs = 20; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.stop.assign(64, "x"); }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.min_p = 1.0F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.repetition_penalty = 0.01F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.repetition_penalty = 100.0F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.presence_penalty = -2.0F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.frequency_penalty = 2.0F; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.logit_bias.assign(1024, {3, -100.0F}); }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.bad_words.assign(1024, {3}); }).Validate());
  EXPECT_OK(With([](SamplingParams& p) { p.min_output_tokens = p.max_output_tokens; }).Validate());
  EXPECT_OK(With([](SamplingParams& p) {
              p.max_output_tokens = 0;
              p.prompt_logprobs = 20;
            }).Validate());
}

TEST(SamplingParamsTest, NamesTheFieldThatIsOutOfRange) {
  struct Case {
    const char* field;
    void (*change)(SamplingParams&);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Case cases[] = {
      {"max_output_tokens", [](SamplingParams& p) { p.max_output_tokens = 0; }},
      {"temperature", [](SamplingParams& p) { p.temperature = -0.1F; }},
      {"temperature", [](SamplingParams& p) { p.temperature = 1e-7F; }},
      {"temperature", [](SamplingParams& p) { p.temperature = kNan; }},
      {"temperature", [](SamplingParams& p) { p.temperature = kInfinity; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 0.0F; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.01F; }},
      {"top_p", [](SamplingParams& p) { p.top_p = kNan; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -1; }},
      {"min_p", [](SamplingParams& p) { p.min_p = 1.01F; }},
      {"min_p", [](SamplingParams& p) { p.min_p = kNan; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0.0F; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 101.0F; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = kNan; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = -2.1F; }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = kNan; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = kInfinity; }},
      {"logit bias",
       [](SamplingParams& p) {
         p.logit_bias = {{3, -100.5F}};
       }},
      {"logit bias",
       [](SamplingParams& p) {
         p.logit_bias = {{3, kNan}};
       }},
      {"token of a logit bias",
       [](SamplingParams& p) {
         p.logit_bias = {{-3, 1.0F}};
       }},
      {"number of logit biases", [](SamplingParams& p) { p.logit_bias.resize(1025); }},
      {"number of bad words", [](SamplingParams& p) { p.bad_words.assign(1025, {3}); }},
      {"tokens of a bad word", [](SamplingParams& p) { p.bad_words.resize(1); }},
      {"tokens of a bad word", [](SamplingParams& p) { p.bad_words.emplace_back(1025, 3); }},
      {"token of a bad word",
       [](SamplingParams& p) {
         p.bad_words = {{3, -1}};
       }},
      {"min_output_tokens", [](SamplingParams& p) { p.min_output_tokens = -1; }},
      {"min_output_tokens", [](SamplingParams& p) { p.min_output_tokens = 17; }},
      {"max_output_tokens",
       [](SamplingParams& p) {
         p.max_output_tokens = -1;
         p.prompt_logprobs = 1;
       }},
      {"prompt_logprobs", [](SamplingParams& p) { p.prompt_logprobs = 21; }},
      {"top_logprobs", [](SamplingParams& p) { p.top_logprobs = 21; }},
      {"stop string",
       [](SamplingParams& p) {
         p.stop = {"a", ""};
       }},
      {"stop string", [](SamplingParams& p) { p.stop = {std::string(5000, 'x')}; }},
      {"stop strings", [](SamplingParams& p) { p.stop.assign(65, "x"); }},
      {"stop token",
       [](SamplingParams& p) {
         p.stop_tokens = {5, -1};
       }},
  };
  for (const Case& one : cases) {
    EXPECT_THAT(With(one.change).Validate(),
                StatusIs(absl::StatusCode::kInvalidArgument, one.field));
  }
}

}  // namespace
}  // namespace nightshift
