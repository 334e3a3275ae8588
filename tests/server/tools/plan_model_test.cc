#include "server/tools/plan_model.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/tools/random_import.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

PlanModelOptions Opt30b() {
  PlanModelOptions options;
  options.model = "opt-30b";
  options.hardware = "t4";
  options.form = ModelForm::kPaper;
  options.requests = 1000;
  return options;
}

nlohmann::json JsonOf(PlanModelOptions options) {
  options.json = true;
  const auto text = PlanModel(options);
  EXPECT_OK(text);
  return nlohmann::json::parse(*text);
}

TEST(PlanModelTest, SaysForWhatItPlans) {
  ASSERT_OK_AND_ASSIGN(const std::string text, PlanModel(Opt30b()));
  EXPECT_THAT(text, HasSubstr("model      opt-30b\n"));
  EXPECT_THAT(text, HasSubstr("machine    t4: "));
  EXPECT_THAT(text, HasSubstr("1000 requests of 512 prompt and 32 output tokens"));
  EXPECT_THAT(text, HasSubstr("generated and"));
}

TEST(PlanModelTest, TheSameArgumentsGiveTheSameBytes) {
  PlanModelOptions options = Opt30b();
  options.json = true;
  EXPECT_EQ(PlanModel(options).value(), PlanModel(options).value());
}

TEST(PlanModelTest, PlansByEachFormOfFlexGen) {
  PlanModelOptions options = Opt30b();
  const nlohmann::json paper = JsonOf(options);
  options.form = ModelForm::kFlexGen;
  const nlohmann::json released = JsonOf(options);
  EXPECT_EQ(paper["model_form"], "paper");
  EXPECT_EQ(released["model_form"], "flexgen");
  EXPECT_LT(paper["plan"]["seconds"], released["plan"]["seconds"]);
}

// The released search with its constants and margin: 32 x 5, 7.08 generated tokens/s.
TEST(PlanModelTest, ReachesWhatTheReleasedSearchReaches) {
  PlanModelOptions options = Opt30b();
  options.hardware = "flexgen-t4";
  options.form = ModelForm::kFlexGen;
  options.requests = 1 << 14;
  options.host_attention = true;
  options.margin_percent = 20;
  EXPECT_GE(JsonOf(options)["plan"]["output_tokens_per_s"], 0.99 * 7.08);
}

TEST(PlanModelTest, KeepsToWhatIsFixed) {
  PlanModelOptions options = Opt30b();
  options.block = 64;
  options.batch = 16;
  options.host_attention = true;
  options.shares[0] = 0.05;
  options.weights = {DType::kF16};
  const nlohmann::json plan = JsonOf(options)["plan"];
  EXPECT_EQ(plan["choice"]["block_requests"], 64);
  EXPECT_EQ(plan["choice"]["batch_requests"], 16);
  EXPECT_EQ(plan["choice"]["attention"], "host");
  EXPECT_EQ(plan["choice"]["weights"], "F16");
  EXPECT_EQ(plan["shares"]["weights"]["device"], 0.05);
}

TEST(PlanModelTest, APackIsPlannedInTheTypeThatItHas) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/pack";
  ASSERT_OK(ImportRandom({.shape = "tiny", .output = path, .weights = DType::kF32}));
  PlanModelOptions options = Opt30b();
  options.model = path;
  const nlohmann::json json = JsonOf(options);
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["plan"]["choice"]["weights"], "F32");
}

TEST(PlanModelTest, WritesThePlotOfTheFrontier) {
  const TemporaryFolder folder;
  PlanModelOptions options = Opt30b();
  options.requests = 100;
  options.frontier = true;
  options.svg_path = folder.path() + "/frontier.svg";
  ASSERT_OK_AND_ASSIGN(const std::string text, PlanModel(options));
  EXPECT_THAT(text, HasSubstr("latency"));
  std::ifstream file(options.svg_path);
  const std::string svg(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(svg, HasSubstr("opt-30b on t4"));
  EXPECT_THAT(PlanModel(options), StatusIs(absl::StatusCode::kAlreadyExists, "frontier.svg"));
}

TEST(PlanModelTest, PlansByTheModelOfThisEngine) {
  PlanModelOptions options = Opt30b();
  options.form = ModelForm::kNightshift;
  const nlohmann::json json = JsonOf(options);
  EXPECT_EQ(json["model_form"], "nightshift");
  EXPECT_GT(json["plan"]["output_tokens_per_s"], 0);
  options.weights = {DType::kBF16, DType::kU4G64};
  options.kv = {DType::kBF16, DType::kU4G64};
  EXPECT_LE(JsonOf(options)["plan"]["seconds"], json["plan"]["seconds"]);
}

TEST(PlanModelTest, PlansMixturesOfExpertsByTheModelOfThisEngine) {
  PlanModelOptions options = Opt30b();
  options.form = ModelForm::kNightshift;
  options.model = "mixtral-8x7b";
  EXPECT_GT(JsonOf(options)["plan"]["output_tokens_per_s"], 0);
}

TEST(PlanModelTest, ASharedPrefixMakesAJobFaster) {
  PlanModelOptions options = Opt30b();
  options.form = ModelForm::kNightshift;
  options.model = "llama-3-8b";
  options.hardware = "desktop-avx512";
  const double alone = JsonOf(options)["plan"]["seconds"];
  options.shared_prefix_tokens = 384;
  EXPECT_LT(JsonOf(options)["plan"]["seconds"], 0.8 * alone);
  options.form = ModelForm::kPaper;
  EXPECT_THAT(PlanModel(options), StatusIs(kInvalid, "--shared-prefix-tokens is 384"));
}

TEST(PlanModelTest, APlanIsRunInVirtualTime) {
  PlanModelOptions options = Opt30b();
  options.form = ModelForm::kNightshift;
  options.hardware = "desktop-avx512";
  options.model = "llama-3-8b";
  options.simulate = true;
  const nlohmann::json json = JsonOf(options);
  const double planned = json["plan"]["seconds"];
  EXPECT_NEAR(json["simulated"]["seconds"].get<double>() / planned, 1, 0.1);
  options.hardware = "flexgen-t4";
  options.form = ModelForm::kPaper;
  EXPECT_THAT(PlanModel(options), StatusIs(kInvalid, "--simulate needs a profile"));
}

TEST(PlanModelTest, ThisEngineIsNotPlannedByFlexGensRates) {
  PlanModelOptions options = Opt30b();
  options.form = ModelForm::kNightshift;
  options.hardware = "flexgen-t4";
  EXPECT_THAT(PlanModel(options), StatusIs(kInvalid, "paper and flexgen only"));
}

TEST(PlanModelTest, NonsenseIsRefusedByName) {
  const auto refusal = [](void (*change)(PlanModelOptions&)) {
    PlanModelOptions options = Opt30b();
    change(options);
    return PlanModel(options).status();
  };
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.requests = 0; }),
              StatusIs(kInvalid, "--requests is 0"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.prompt_tokens = -1; }),
              StatusIs(kInvalid, "--prompt-tokens is -1"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.output_tokens = 4096; }),
              StatusIs(kInvalid, "more than the model's context of 2048"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.block = -3; }),
              StatusIs(kInvalid, "the block is -3"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.margin_percent = 300; }),
              StatusIs(kInvalid, "the margin is 3"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.model = "mixtral-8x7b"; }),
              StatusIs(kInvalid, "mixture of 8 experts"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.model = "opt-31b"; }),
              StatusIs(absl::StatusCode::kNotFound, "no shape is named opt-31b"));
  EXPECT_THAT(refusal([](PlanModelOptions& o) { o.hardware = "t5"; }),
              StatusIs(absl::StatusCode::kNotFound, "t5"));
}

TEST(PlanModelTest, ReadsTypesByName) {
  EXPECT_THAT(ParseTypes("kv", "bf16,U4G64").value(), ElementsAre(DType::kBF16, DType::kU4G64));
  EXPECT_THAT(ParseTypes("kv", "").value(), IsEmpty());
  EXPECT_THAT(ParseTypes("kv", "bf16,int3"), StatusIs(kInvalid, "--kv has \"int3\"; there are f32"));
}

}  // namespace
}  // namespace nightshift
