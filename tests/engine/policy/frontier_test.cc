#include "engine/policy/frontier.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/model/known_shapes.h"
#include "engine/policy/flexgen_cost.h"
#include "tests/support/status_matchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nightshift {
namespace {

using ::testing::HasSubstr;

constexpr double kGibibyte = 1 << 30;

PlanOptions JobOptions() {
  PlanOptions options;
  options.space.requests = 600;
  options.prompt_tokens = 512 * 600;
  options.output_tokens = 32 * 600;
  return options;
}

absl::StatusOr<Frontier> Opt30bOnT4(const PlanOptions& options, double host_gibibytes) {
  const auto cost =
      FlexGenCost::Create({.form = FlexGenForm::kPaper,
                           .shape = FlexGenShapeOf(FindKnownShape("opt-30b")->config).value(),
                           .prompt_tokens = 512,
                           .output_tokens = options.output_tokens > 0 ? 32 : 0,
                           .requests = options.space.requests,
                           .rates = ShippedFlexGenRates(),
                           .tier_bytes = {16 * kGibibyte, host_gibibytes * kGibibyte, 0}});
  return FindFrontier(**cost, options);
}

TEST(FrontierTest, MoreLatencyBuysMoreThroughput) {
  ASSERT_OK_AND_ASSIGN(const Frontier frontier, Opt30bOnT4(JobOptions(), 208));
  ASSERT_GE(frontier.points.size(), 5U);
  for (size_t i = 1; i < frontier.points.size(); ++i) {
    EXPECT_GT(frontier.points[i].held_seconds, frontier.points[i - 1].held_seconds);
    EXPECT_GT(frontier.points[i].tokens_per_s, frontier.points[i - 1].tokens_per_s);
  }
}

TEST(FrontierTest, EndsAtTheBestPlan) {
  const PlanOptions options = JobOptions();
  ASSERT_OK_AND_ASSIGN(const Frontier frontier, Opt30bOnT4(options, 208));
  PlanOptions wider = options;
  wider.space.max_held_seconds = 2 * frontier.points.back().held_seconds;
  ASSERT_OK_AND_ASSIGN(const Frontier bounded, Opt30bOnT4(wider, 208));
  EXPECT_NEAR(bounded.points.back().tokens_per_s, frontier.points.back().tokens_per_s,
              1e-3 * frontier.points.back().tokens_per_s);
}

TEST(FrontierTest, KeepsToABoundOnLatency) {
  PlanOptions options = JobOptions();
  ASSERT_OK_AND_ASSIGN(const Frontier all, Opt30bOnT4(options, 208));
  options.space.max_held_seconds = all.points[all.points.size() / 2].held_seconds;
  ASSERT_OK_AND_ASSIGN(const Frontier bounded, Opt30bOnT4(options, 208));
  EXPECT_LE(bounded.points.back().held_seconds, *options.space.max_held_seconds * (1 + 1e-6));
}

TEST(FrontierTest, JsonAndTableListEveryPoint) {
  ASSERT_OK_AND_ASSIGN(const Frontier frontier, Opt30bOnT4(JobOptions(), 208));
  const nlohmann::json json = nlohmann::json::parse(FrontierJson(frontier));
  ASSERT_EQ(json["points"].size(), frontier.points.size());
  EXPECT_EQ(json["points"][0]["held_seconds"], frontier.points[0].held_seconds);
  const std::string text = FrontierText(frontier);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'),
            static_cast<std::ptrdiff_t>(frontier.points.size()) + 1);
}

TEST(FrontierTest, ThePlotHasAxesWithUnitsAndStaysInside) {
  ASSERT_OK_AND_ASSIGN(const Frontier frontier, Opt30bOnT4(JobOptions(), 208));
  const std::string svg = FrontierSvg(frontier, "opt-30b & <t4>");
  EXPECT_THAT(svg, HasSubstr("opt-30b &amp; &lt;t4&gt;"));
  EXPECT_THAT(svg, HasSubstr("is held (s)"));
  EXPECT_THAT(svg, HasSubstr("(generated tokens/s)"));
  size_t num_circles = 0;
  for (size_t at = svg.find("cx=\""); at != std::string::npos; at = svg.find("cx=\"", at + 1)) {
    const double x = std::stod(svg.substr(at + 4));
    EXPECT_GE(x, 80);
    EXPECT_LE(x, 700);
    ++num_circles;
  }
  EXPECT_EQ(num_circles, frontier.points.size());
}

TEST(FrontierTest, PromptsThatAreOnlyScoredCount) {
  PlanOptions options = JobOptions();
  options.output_tokens = 0;
  ASSERT_OK_AND_ASSIGN(const Frontier frontier, Opt30bOnT4(options, 208));
  EXPECT_EQ(frontier.rate_name, "prompt tokens/s");
}

TEST(FrontierTest, WhereNothingFitsItTellsWhy) {
  EXPECT_THAT(Opt30bOnT4(JobOptions(), 20),
              StatusIs(absl::StatusCode::kResourceExhausted, " lacks "));
}

}  // namespace
}  // namespace nightshift
