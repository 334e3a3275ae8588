#include "engine/model/config.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

ModelConfig Llama() {
  ModelConfig config;
  config.family = "llama";
  config.architecture = "LlamaForCausalLM";
  config.vocabulary = 100;
  config.num_layers = 2;
  config.model_width = config.embedding_width = 64;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_width = 16;
  config.ffn_width = 128;
  config.context_tokens = 512;
  config.norm_epsilon = 1e-6F;
  config.rope.theta = 123456.789;
  config.rope.rotary_width = 16;
  config.bos_token = 1;
  config.eos_tokens = {2, 99};
  return config;
}

TEST(ModelConfigTest, JsonKeepsEveryField) {
  ModelConfig config = Llama();
  config.rope.scaling = RopeScaling::kLlama3;
  config.rope.factor = 8.0;
  config.rope.low_freq_factor = 0.1;
  config.rope.high_freq_factor = 3.3;
  config.rope.original_context_tokens = 128;
  ASSERT_OK_AND_ASSIGN(const ModelConfig read, ModelConfigFromJson(ModelConfigToJson(config)));
  EXPECT_EQ(ModelConfigToJson(read), ModelConfigToJson(config));
  EXPECT_EQ(read.rope.theta, config.rope.theta);
  EXPECT_EQ(read.norm_epsilon, config.norm_epsilon);
  EXPECT_EQ(read.rope.low_freq_factor, 0.1);
  EXPECT_EQ(read.eos_tokens, config.eos_tokens);
}

TEST(ModelConfigTest, JsonKeepsDivisorsAndLearnedPositions) {
  ModelConfig config = Llama();
  config.rope.scaling = RopeScaling::kDivisors;
  config.rope.divisors = {1.0F, 1.1F, 2.0F, 4.0F, 8.0F, 8.0F, 8.0F, 1e-7F};
  ASSERT_OK_AND_ASSIGN(ModelConfig read, ModelConfigFromJson(ModelConfigToJson(config)));
  EXPECT_EQ(read.rope.divisors, config.rope.divisors);
  config = Llama();
  config.family = "opt";
  config.position = PositionKind::kLearned;
  config.learned_position_offset = 2;
  config.norm = NormKind::kLayer;
  config.pre_norm = config.final_norm = config.gated_ffn = false;
  config.tied_head = true;
  config.activation = Activation::kGeluTanh;
  ASSERT_OK_AND_ASSIGN(read, ModelConfigFromJson(ModelConfigToJson(config)));
  EXPECT_EQ(read.learned_position_offset, 2);
  EXPECT_EQ(read.position, PositionKind::kLearned);
  EXPECT_EQ(read.norm, NormKind::kLayer);
  EXPECT_EQ(read.activation, Activation::kGeluTanh);
  EXPECT_TRUE(read.tied_head);
  EXPECT_FALSE(read.pre_norm);
}

// Every field that only some models have, at a value of its own.
ModelConfig Decorated() {
  ModelConfig config = Llama();
  config.branch_norm = true;
  config.qk_norm = QkNorm::kRow;
  config.rope.scaling = RopeScaling::kYarn;
  config.rope.factor = 4.0;
  config.rope.beta_fast = 30.0;
  config.rope.beta_slow = 2.0;
  config.rope.truncate = false;
  config.rope.magnitude = 1.25;
  config.rope.original_context_tokens = 64;
  config.sliding_rope = Llama().rope;
  config.sliding_window = 8;
  config.sliding_layers = {true, false};
  config.attention_scale = 0.3F;
  config.attention_softcap = 50.1F;
  config.logit_softcap = 30.1F;
  config.embedding_multiplier = 9.7F;
  config.residual_multiplier = 0.6F;
  config.logit_multiplier = 0.7F;
  return config;
}

TEST(ModelConfigTest, JsonKeepsWhatOnlySomeModelsHave) {
  const ModelConfig config = Decorated();
  ASSERT_OK_AND_ASSIGN(ModelConfig read, ModelConfigFromJson(ModelConfigToJson(config)));
  EXPECT_EQ(ModelConfigToJson(read), ModelConfigToJson(config));
  EXPECT_TRUE(read.branch_norm);
  EXPECT_EQ(read.qk_norm, QkNorm::kRow);
  EXPECT_EQ(read.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(read.rope.beta_fast, 30.0);
  EXPECT_EQ(read.rope.beta_slow, 2.0);
  EXPECT_FALSE(read.rope.truncate);
  EXPECT_EQ(read.rope.magnitude, 1.25);
  ASSERT_TRUE(read.sliding_rope.has_value());
  EXPECT_EQ(read.sliding_rope->theta, 123456.789);
  EXPECT_EQ(read.sliding_window, 8);
  EXPECT_EQ(read.sliding_layers, (std::vector<bool>{true, false}));
  EXPECT_EQ(read.attention_scale, 0.3F);
  EXPECT_EQ(read.attention_softcap, 50.1F);
  EXPECT_EQ(read.logit_softcap, 30.1F);
  EXPECT_EQ(read.embedding_multiplier, 9.7F);
  EXPECT_EQ(read.residual_multiplier, 0.6F);
  EXPECT_EQ(read.logit_multiplier, 0.7F);
  ModelConfig parallel = Llama();
  parallel.parallel_branches = parallel.shared_norm = true;
  ASSERT_OK_AND_ASSIGN(read, ModelConfigFromJson(ModelConfigToJson(parallel)));
  EXPECT_TRUE(read.parallel_branches);
  EXPECT_TRUE(read.shared_norm);
}

TEST(ModelConfigTest, JsonKeepsExperts) {
  ModelConfig config = Llama();
  config.experts = ExpertConfig{
      .count = 8, .per_token = 3, .ffn_width = 52, .normalise = false, .layers = {false, true}};
  ASSERT_OK_AND_ASSIGN(const ModelConfig read, ModelConfigFromJson(ModelConfigToJson(config)));
  ASSERT_TRUE(read.experts.has_value());
  EXPECT_EQ(read.experts->count, 8);
  EXPECT_EQ(read.experts->per_token, 3);
  EXPECT_EQ(read.experts->ffn_width, 52);
  EXPECT_FALSE(read.experts->normalise);
  EXPECT_FALSE(HasExperts(read, 0));
  EXPECT_TRUE(HasExperts(read, 1));
}

// A manifest lists every expert, so their number in the whole model is bounded too.
TEST(ModelConfigTest, MoreExpertsThanAManifestCanListAreRefused) {
  ModelConfig config = Llama();
  config.num_layers = 64;
  config.experts = ExpertConfig{
      .count = 2048, .per_token = 8, .ffn_width = 64, .layers = std::vector<bool>(64, true)};
  EXPECT_OK(ValidateModelConfig(config));
  config.experts->count = 2049;
  EXPECT_THAT(ValidateModelConfig(config),
              StatusIs(kInvalid,
                       "2049 experts in each of 64 layers are 131136 experts; at most "
                       "131072 are supported"));
}

TEST(ModelConfigTest, PlainModelsDoNotNameWhatTheyDoNotHave) {
  const std::string plain = ModelConfigToJson(Llama());
  for (const char* name : {"sliding", "multiplier", "softcap", "scale", "branch", "magnitude"}) {
    EXPECT_EQ(plain.find(name), std::string::npos) << name;
  }
}

TEST(ModelConfigTest, EveryFieldIsNeeded) {
  const Json whole = Json::parse(ModelConfigToJson(Llama()));
  for (const auto& [name, value] : whole.items()) {
    Json part = whole;
    part.erase(name);
    EXPECT_THAT(ModelConfigFromJson(part.dump()), StatusIs(kInvalid, name)) << name;
  }
}

Json Experts(int64_t count, int64_t per_token, const Json& layers = {true, true}) {
  return {{"count", count},
          {"per_token", per_token},
          {"ffn_width", 52},
          {"normalise", true},
          {"layers", layers}};
}

struct RefusedCase {
  const char* name;
  Json changes;
  const char* message;
};

class RefusedModelConfigTest : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedModelConfigTest, IsRefusedByName) {
  Json config = Json::parse(ModelConfigToJson(Llama()));
  config.merge_patch(GetParam().changes);
  EXPECT_THAT(ModelConfigFromJson(config.dump()), StatusIs(kInvalid, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedModelConfigTest,
    ::testing::Values(
        RefusedCase{"UnknownFamily", {{"family", "gpt9"}}, "family gpt9 is not one of"},
        RefusedCase{"UnknownNorm", {{"norm", "batch"}}, "norm is not a value"},
        RefusedCase{"UnknownActivation", {{"activation", "none"}}, "activation is not a value"},
        RefusedCase{"VocabularyZero", {{"vocabulary", 0}}, "vocabulary"},
        RefusedCase{"VocabularyHuge", {{"vocabulary", 1LL << 60}}, "vocabulary"},
        RefusedCase{"HeadsHuge", {{"num_heads", 1LL << 40}}, "num_heads"},
        RefusedCase{"HeadsNotDivisible", {{"num_kv_heads", 3}}, "num_kv_heads"},
        RefusedCase{"RotaryAboveHead", {{"rope", {{"rotary_width", 18}}}}, "rotary_width"},
        RefusedCase{"RotaryOdd", {{"rope", {{"rotary_width", 7}}}}, "rotary_width"},
        RefusedCase{"RopeIsText", {{"rope", "none"}}, "rope is not an object"},
        RefusedCase{"ScalingUnknown", {{"rope", {{"scaling", "ntk"}}}}, "scaling is not a value"},
        RefusedCase{
            "NoDivisors", {{"rope", {{"scaling", "divisors"}}}}, "divisors is not an array"},
        RefusedCase{"TooFewDivisors",
                    {{"rope", {{"scaling", "divisors"}, {"divisors", {1.0, 2.0}}}}},
                    "divisors has 2 numbers, not 8"},
        RefusedCase{"DivisorIsText",
                    {{"rope", {{"scaling", "divisors"}, {"divisors", {"x"}}}}},
                    "not a number"},
        RefusedCase{"UnknownQkNorm", {{"qk_norm", "layer"}}, "qk_norm is not a value"},
        RefusedCase{"WindowZero", {{"sliding_window", 0}}, "sliding_window"},
        RefusedCase{"WindowNegative", {{"sliding_window", -8}}, "sliding_window"},
        RefusedCase{"WindowOfNoLayer", {{"sliding_window", 8}}, "sliding_layers is not an array"},
        RefusedCase{"WindowOfTooFewLayers",
                    {{"sliding_window", 8}, {"sliding_layers", {true}}},
                    "sliding_layers has 1 of 2"},
        RefusedCase{"WindowLayersAreNumbers",
                    {{"sliding_window", 8}, {"sliding_layers", {1, 0}}},
                    "neither true nor false"},
        RefusedCase{"SlidingRopeWithoutWindow",
                    {{"sliding_rope", {{"theta", 1e4}, {"rotary_width", 16}, {"scaling", "none"}}}},
                    "sliding_rope is there without"},
        RefusedCase{"SlidingRopeOdd",
                    {{"sliding_window", 8},
                     {"sliding_layers", {true, true}},
                     {"sliding_rope", {{"theta", 1e4}, {"rotary_width", 3}, {"scaling", "none"}}}},
                    "rotary_width 3 is odd"},
        RefusedCase{"ExpertsAreANumber", {{"experts", 8}}, "experts is not an object"},
        RefusedCase{"ExpertsWithoutCount", {{"experts", {{"per_token", 2}}}}, "count is missing"},
        RefusedCase{"TooManyExperts", {{"experts", Experts(5000, 2)}}, "count"},
        RefusedCase{"NoExperts", {{"experts", Experts(0, 0)}}, "count"},
        RefusedCase{"MoreExpertsForATokenThanThereAre",
                    {{"experts", Experts(4, 5)}},
                    "experts.per_token is 5, not from 1 to 4"},
        RefusedCase{"ExpertsOfTooFewLayers",
                    {{"experts", Experts(4, 2, {true})}},
                    "1 layers with experts among 1; the model has 2 layers"},
        RefusedCase{"ExpertsOfNoLayer",
                    {{"experts", Experts(4, 2, {false, false})}},
                    "names 0 layers with experts"},
        RefusedCase{"ExpertLayersAreNumbers",
                    {{"experts", Experts(4, 2, {1, 1})}},
                    "experts.layers holds something"},
        RefusedCase{"ExpertsBesideBranchNorms",
                    {{"experts", Experts(4, 2)}, {"branch_norm", true}},
                    "layers are not those of Llama"},
        RefusedCase{"CapNegative", {{"attention_softcap", -2.0}}, "attention_softcap"},
        RefusedCase{"LogitCapIsText", {{"logit_softcap", "30"}}, "logit_softcap"},
        RefusedCase{
            "EmbeddingMultiplierZero", {{"embedding_multiplier", 0}}, "embedding_multiplier"},
        RefusedCase{
            "ResidualMultiplierHuge", {{"residual_multiplier", 1e39}}, "residual_multiplier"},
        RefusedCase{"LogitMultiplierNegative", {{"logit_multiplier", -1.0}}, "logit_multiplier"},
        RefusedCase{"MagnitudeZero", {{"rope", {{"magnitude", 0.0}}}}, "rope.magnitude"},
        RefusedCase{"YarnBetasReversed",
                    {{"rope",
                      {{"scaling", "yarn"},
                       {"factor", 4.0},
                       {"beta_fast", 1.0},
                       {"beta_slow", 32.0},
                       {"original_context_tokens", 32}}}},
                    "beta_fast is not above"},
        RefusedCase{"YarnWithoutContext",
                    {{"rope", {{"scaling", "yarn"}, {"factor", 4.0}}}},
                    "original_context_tokens"},
        RefusedCase{"ParallelWithBranchNorm",
                    {{"parallel_branches", true}, {"branch_norm", true}},
                    "parallel_branches"},
        RefusedCase{"SharedNormAlone", {{"shared_norm", true}}, "shared_norm"},
        RefusedCase{"EpsilonAboveOne", {{"norm_epsilon", 2.0}}, "norm_epsilon"},
        RefusedCase{"BosBeyondVocabulary", {{"bos_token", 100}}, "bos_token"},
        RefusedCase{"EosBeyondVocabulary", {{"eos_tokens", {100}}}, "eos_tokens"},
        RefusedCase{"EosNegative", {{"eos_tokens", {-1}}}, "eos_tokens"},
        RefusedCase{"EosIsNumber", {{"eos_tokens", 2}}, "eos_tokens is not an array"},
        RefusedCase{"TooManyEos", {{"eos_tokens", std::vector<int>(65, 1)}}, "eos_tokens"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace nightshift
