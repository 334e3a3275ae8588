#include "engine/policy/plan.h"

#include <algorithm>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/model/known_shapes.h"
#include "engine/policy/flexgen_cost.h"
#include "tests/support/status_matchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nightshift {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kGibibyte = 1 << 30;

FlexGenOptions T4Options() {
  return {.form = FlexGenForm::kPaper,
          .shape = FlexGenShapeOf(FindKnownShape("opt-30b")->config).value(),
          .prompt_tokens = 512,
          .output_tokens = 32,
          .requests = 1000,
          .rates = ShippedFlexGenRates(),
          .tier_bytes = {16 * kGibibyte, 80 * kGibibyte, 1500 * kGibibyte}};
}

PlanOptions JobOptions() {
  PlanOptions options;
  options.space.requests = 1000;
  options.space.kv = {DType::kF16};
  options.prompt_tokens = 512 * 1000;
  options.output_tokens = 32 * 1000;
  return options;
}

Plan MakeT4Plan() {
  return MakePlan(*FlexGenCost::Create(T4Options()).value(), JobOptions()).value();
}

TEST(PlanTest, PartsAddUp) {
  const Plan plan = MakeT4Plan();
  double seconds = 0;
  for (const PlanPhase& phase : plan.phases) {
    seconds += phase.seconds;
    double longest = 0;
    for (const PlanLane& lane : phase.lanes) {
      longest = std::max(longest, lane.seconds);
    }
    EXPECT_DOUBLE_EQ(longest, phase.seconds) << "the paper's form hides all but the longest";
  }
  EXPECT_NEAR(seconds, plan.seconds, 1e-9 * seconds);
  EXPECT_NEAR(plan.output_tokens_per_s, 32000 / seconds, 1e-9);
  EXPECT_NEAR(plan.prompt_tokens_per_s, 512000 / seconds, 1e-6);
  ASSERT_EQ(plan.tiers.size(), 3U);
  for (const PlanTier& tier : plan.tiers) {
    EXPECT_LE(tier.bytes, tier.capacity_bytes * (1 + 1e-6)) << tier.row;
  }
}

TEST(PlanTest, AReliefIsWhatThatMachineWouldGive) {
  const Plan plan = MakeT4Plan();
  const auto relief =
      std::find_if(plan.reliefs.begin(), plan.reliefs.end(),
                   [](const PlanRelief& each) { return each.what == "8 GiB more host memory"; });
  ASSERT_NE(relief, plan.reliefs.end());
  FlexGenOptions larger = T4Options();
  larger.tier_bytes[1] += 8 * kGibibyte;
  PlanOptions options = JobOptions();
  options.space.host_attention = plan.choice.host_attention;
  const Plan better = MakePlan(*FlexGenCost::Create(larger).value(), options).value();
  EXPECT_NEAR(relief->gain, better.output_tokens_per_s / plan.output_tokens_per_s - 1, 1e-6);
  EXPECT_GT(relief->gain, 0.01);
}

TEST(PlanTest, ReliefsAreSortedAndWorthIt) {
  const Plan plan = MakeT4Plan();
  ASSERT_FALSE(plan.reliefs.empty());
  EXPECT_TRUE(
      std::is_sorted(plan.reliefs.begin(), plan.reliefs.end(),
                     [](const PlanRelief& a, const PlanRelief& b) { return a.gain > b.gain; }));
  EXPECT_GT(plan.reliefs.back().gain, 0.005);
}

TEST(PlanTest, TheTextTellsWhatAPersonAsks) {
  const std::string text = PlanText(MakeT4Plan());
  for (const char* part : {"requests in batches of", "weights    ", "tokens/s", "prefill", "decode",
                           " of 80 GiB (host, ", "waits for", "more host memory would give +",
                           "rejected   ", "% longer"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(PlanTest, TheJsonSaysTheSameAndHasTheSameBytesEachTime) {
  const Plan plan = MakeT4Plan();
  const std::string text = PlanJson(plan);
  EXPECT_EQ(text, PlanJson(MakeT4Plan()));
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["choice"]["block_requests"], plan.choice.block_requests);
  EXPECT_EQ(json["shares"]["weights"]["disk"], plan.shares[2]);
  EXPECT_EQ(json["seconds"], plan.seconds);
  EXPECT_EQ(json["phases"].size(), 2U);
  EXPECT_EQ(json["tiers"].size(), 3U);
  EXPECT_EQ(json["rejections"].size(), plan.rejections.size());
}

TEST(PlanTest, ARejectionSaysWhyItCannotBe) {
  FlexGenOptions machine = T4Options();
  machine.tier_bytes[2] = 0;  // 80 GiB hold the weights in 16 bits, and little else
  const auto plan = MakePlan(*FlexGenCost::Create(machine).value(), JobOptions());
  ASSERT_OK(plan);
  EXPECT_THAT(plan->rejections, Contains(Field(&PlanRejection::why, HasSubstr(" lacks "))));
}

TEST(PlanTest, WhereNothingFitsItTellsWhatWould) {
  FlexGenOptions machine = T4Options();
  machine.tier_bytes = {16 * kGibibyte, 30 * kGibibyte, 0};
  const auto plan = MakePlan(*FlexGenCost::Create(machine).value(), JobOptions());
  EXPECT_THAT(plan, StatusIs(absl::StatusCode::kResourceExhausted, "the disk lacks"));
  EXPECT_THAT(plan, StatusIs(absl::StatusCode::kResourceExhausted,
                             "with weights in I8G32 and keys and values in F16 it would"));
  machine.tier_bytes = {4, 4, 4};
  const auto none = MakePlan(*FlexGenCost::Create(machine).value(), JobOptions());
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kResourceExhausted, "the device lacks"));
  EXPECT_THAT(std::string(none.status().message()), Not(HasSubstr("it would")));
}

TEST(PlanTest, PromptsThatAreOnlyScoredHaveARateOfPrompts) {
  FlexGenOptions machine = T4Options();
  machine.output_tokens = 0;
  PlanOptions options = JobOptions();
  options.output_tokens = 0;
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(*FlexGenCost::Create(machine).value(), options));
  EXPECT_EQ(plan.output_tokens_per_s, 0);
  EXPECT_GT(plan.prompt_tokens_per_s, 0);
}

}  // namespace
}  // namespace nightshift
