#include "server/scheduling/request_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::ElementsAre;

TEST(RequestOptionsTest, ServerDefaultsHoldWhereNobodySaysOtherwise) {
  const SamplingParams sampling = ResolveSampling({}, {}, 7);
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
  const SamplingParams sampling = ResolveSampling(job, row, 0);
  EXPECT_EQ(sampling.temperature, 0.0F);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.seed, 12U);
  EXPECT_EQ(sampling.max_output_tokens, 10);
}

TEST(RequestOptionsTest, ARowsListsReplaceTheJobs) {
  v1::SamplingOptions job;
  job.add_stop("a");
  job.add_stop_token_ids(1);
  EXPECT_THAT(ResolveSampling(job, {}, 0).stop, ElementsAre("a"));
  v1::SamplingOptions row;
  row.add_stop("b");
  const SamplingParams sampling = ResolveSampling(job, row, 0);
  EXPECT_THAT(sampling.stop, ElementsAre("b"));
  EXPECT_THAT(sampling.stop_tokens, ElementsAre(1));
}

TEST(RequestOptionsTest, AlternativesNeedLogprobs) {
  v1::SamplingOptions job;
  job.set_top_logprobs(5);
  EXPECT_EQ(ResolveSampling(job, {}, 0).top_logprobs, 0);
  job.set_logprobs(true);
  EXPECT_EQ(ResolveSampling(job, {}, 0).top_logprobs, 5);
}

TEST(RequestOptionsTest, TemplateArgumentsAreLaidOverEachOther) {
  v1::PromptOptions job;
  auto& of_job = *job.mutable_chat_template_kwargs()->mutable_fields();
  of_job["kept"].set_string_value("yes");
  of_job["count"].set_number_value(3);
  v1::PromptOptions row;
  auto& of_row = *row.mutable_chat_template_kwargs()->mutable_fields();
  of_row["count"].set_number_value(4);
  of_row["half"].set_number_value(0.5);
  of_row["list"].mutable_list_value()->add_values()->set_bool_value(true);
  row.set_add_generation_prompt(false);
  const EncodeOptions options = ResolvePromptOptions(job, row);
  EXPECT_EQ(nlohmann::json(options.template_arguments),
            nlohmann::json::parse(R"({"kept": "yes", "count": 4, "half": 0.5, "list": [true]})"));
  EXPECT_TRUE(options.template_arguments["count"].is_number_integer());
  EXPECT_FALSE(options.add_generation_prompt);
  EXPECT_TRUE(ResolvePromptOptions({}, {}).add_generation_prompt);
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
