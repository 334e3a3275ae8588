#include "server/scheduling/request_options.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;

SamplingParams Resolve(const v1::SamplingOptions& job, const v1::SamplingOptions& row,
                       int64_t index) {
  return ResolveSampling(MergeSampling(job, row), index);
}

TEST(RequestOptionsTest, ServerDefaultsHoldWhereNobodySaysOtherwise) {
  const SamplingParams sampling = Resolve({}, {}, 7);
  EXPECT_EQ(sampling.max_output_tokens, 256);
  EXPECT_EQ(sampling.temperature, 0.0F);
  EXPECT_EQ(sampling.top_p, 1.0F);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.request_key, 7U);
  EXPECT_FALSE(sampling.want_logprobs);
}

TEST(RequestOptionsTest, TheRowOverridesTheJobFieldByField) {
  v1::SamplingOptions job;
  job.set_temperature(0.5);
  job.set_top_p(0.9);
  job.set_seed(11);
  job.set_max_output_tokens(10);
  v1::SamplingOptions row;
  row.set_temperature(0);
  row.set_seed(12);
  const SamplingParams sampling = Resolve(job, row, 0);
  EXPECT_EQ(sampling.temperature, 0.0F);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.seed, 12U);
  EXPECT_EQ(sampling.max_output_tokens, 10);
}

TEST(RequestOptionsTest, ARowsListsReplaceTheJobs) {
  v1::SamplingOptions job;
  job.add_stop("a");
  job.add_stop_token_ids(1);
  EXPECT_THAT(Resolve(job, {}, 0).stop, ElementsAre("a"));
  v1::SamplingOptions row;
  row.add_stop("b");
  const SamplingParams sampling = Resolve(job, row, 0);
  EXPECT_THAT(sampling.stop, ElementsAre("b"));
  EXPECT_THAT(sampling.stop_tokens, ElementsAre(1));
}

TEST(RequestOptionsTest, AlternativesNeedLogprobs) {
  v1::SamplingOptions job;
  job.set_top_logprobs(5);
  EXPECT_EQ(Resolve(job, {}, 0).top_logprobs, 0);
  job.set_logprobs(true);
  EXPECT_EQ(Resolve(job, {}, 0).top_logprobs, 5);
}

TEST(RequestOptionsTest, EveryOptionReachesTheEngine) {
  v1::SamplingOptions options;
  options.set_min_p(0.125);
  options.set_repetition_penalty(1.25);
  options.set_presence_penalty(0.5);
  options.set_frequency_penalty(-0.25);
  options.set_min_output_tokens(3);
  options.set_ignore_eos(true);
  (*options.mutable_logit_bias())[7] = -100.0;
  options.add_bad_words()->mutable_tokens()->add_ids(4);
  options.add_bad_words()->set_text("left to the tokenizer");
  const SamplingParams sampling = ResolveSampling(options, 0);
  EXPECT_EQ(sampling.min_p, 0.125F);
  EXPECT_EQ(sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(sampling.presence_penalty, 0.5F);
  EXPECT_EQ(sampling.frequency_penalty, -0.25F);
  EXPECT_EQ(sampling.min_output_tokens, 3);
  EXPECT_TRUE(sampling.ignore_eos);
  ASSERT_EQ(sampling.logit_bias.size(), 1U);
  EXPECT_EQ(sampling.logit_bias[0].token, 7);
  EXPECT_EQ(sampling.logit_bias[0].bias, -100.0F);
  EXPECT_THAT(sampling.bad_words, ElementsAre(ElementsAre(4)));
  const SamplingParams off = ResolveSampling({}, 0);
  EXPECT_EQ(off.repetition_penalty, 1.0F);
  EXPECT_EQ(off.min_p, 0.0F);
}

TEST(RequestOptionsTest, ARowsBiasesAndBadWordsReplaceTheJobs) {
  v1::SamplingOptions job;
  (*job.mutable_logit_bias())[7] = 1.0;
  job.add_bad_words()->mutable_tokens()->add_ids(4);
  v1::SamplingOptions row;
  (*row.mutable_logit_bias())[8] = 2.0;
  row.add_bad_words()->mutable_tokens()->add_ids(5);
  const v1::SamplingOptions merged = MergeSampling(job, row);
  EXPECT_EQ(merged.logit_bias_size(), 1);
  EXPECT_EQ(merged.logit_bias().at(8), 2.0);
  EXPECT_EQ(merged.bad_words_size(), 1);
  EXPECT_EQ(MergeSampling(job, {}).logit_bias().at(7), 1.0);
}

TEST(RequestOptionsTest, EchoCoversThePromptWhenLogprobsAreAskedFor) {
  v1::SamplingOptions options;
  v1::InferenceRequest row;
  row.set_echo(true);
  EXPECT_FALSE(ResolvePromptLogprobs(options, row).has_value());
  options.set_logprobs(true);
  options.set_top_logprobs(2);
  EXPECT_EQ(ResolvePromptLogprobs(options, row), 2);
  row.set_echo(false);
  EXPECT_FALSE(ResolvePromptLogprobs(options, row).has_value());
  row.set_prompt_logprobs(0);
  EXPECT_EQ(ResolvePromptLogprobs(options, row), 0);
}

TEST(RequestOptionsTest, BadWordsInTextAreBannedWithAndWithoutASpaceBefore) {
  TokenizerSpec spec;
  spec.tokens = {"b", "a", "d", " "};
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer,
                       Tokenizer::Create(std::move(spec)));
  v1::SamplingOptions options;
  options.add_bad_words()->set_text("  bad");
  options.add_bad_words()->mutable_tokens()->add_ids(2);
  ASSERT_OK_AND_ASSIGN(const auto words, EncodeBadWords(options, tokenizer.get()));
  ASSERT_EQ(words.size(), 2U);
  EXPECT_THAT(words[0], ElementsAre(0, 1, 2));
  EXPECT_THAT(words[1], ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(EncodeBadWords(options, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, "bad_words[0]"));
}

TEST(RequestOptionsTest, TemplateArgumentsAreLaidOverEachOther) {
  v1::PromptOptions job;
  job.set_chat_template_kwargs(R"({"kept": "yes", "count": 3})");
  v1::PromptOptions row;
  row.set_chat_template_kwargs(R"({"z": {"b": 1, "a": 2}, "count": 4, "half": 0.5, "one": 1.0})");
  row.set_add_generation_prompt(false);
  ASSERT_OK_AND_ASSIGN(const EncodeOptions options, ResolvePromptOptions(job, row, 7));
  EXPECT_EQ(options.template_arguments.dump(),
            R"({"kept":"yes","count":4,"z":{"b":1,"a":2},"half":0.5,"one":1.0})");
  EXPECT_FALSE(options.add_generation_prompt);
  ASSERT_OK_AND_ASSIGN(const EncodeOptions absent, ResolvePromptOptions({}, {}, 7));
  EXPECT_TRUE(absent.add_generation_prompt);
  EXPECT_TRUE(absent.template_arguments.empty());
}

TEST(RequestOptionsTest, TheTimeOfTemplatesIsThatOfTheJob) {
  ASSERT_OK_AND_ASSIGN(const EncodeOptions options, ResolvePromptOptions({}, {}, 1'234'567));
  EXPECT_EQ(options.now_us, 1'234'567);
}

TEST(RequestOptionsTest, MessagesKeepTheirNamesOnlyWhenTheyHaveOne) {
  v1::Chat chat;
  chat.add_messages()->set_role("user");
  chat.mutable_messages(0)->set_content("hello");
  chat.add_messages()->set_role("user");
  chat.mutable_messages(1)->set_name("ann");
  EXPECT_EQ(MessagesToJson(chat),
            nlohmann::ordered_json::parse(R"([{"role": "user", "content": "hello"},
                                      {"role": "user", "content": "", "name": "ann"}])"));
}

}  // namespace
}  // namespace nightshift
