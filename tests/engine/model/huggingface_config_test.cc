#include "engine/model/huggingface_config.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string TinyConfig(const std::string& model) {
  return ReadWholeFile(std::string(TEST_DATA_DIR) + "/tiny/" + model + "/config.json");
}

// The llama config with some members replaced; null removes one.
std::string LlamaWith(const Json& changes) {
  Json config = Json::parse(TinyConfig("llama"));
  config.merge_patch(changes);
  return config.dump();
}

TEST(HuggingFaceConfigTest, ReadsLlama) {
  ASSERT_OK_AND_ASSIGN(const SourceModel model,
                       SourceModelFromHuggingFace(TinyConfig("llama"), ""));
  const ModelConfig& config = model.config;
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocabulary, 331);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.model_width, 64);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_width, 16);
  EXPECT_EQ(config.ffn_width, 172);
  EXPECT_EQ(config.context_tokens, 256);
  EXPECT_EQ(config.norm, NormKind::kRms);
  EXPECT_EQ(config.norm_epsilon, 1e-6F);
  EXPECT_EQ(config.activation, Activation::kSilu);
  EXPECT_TRUE(config.gated_ffn);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(config.rope.rotary_width, 16);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, std::vector<int32_t>{2});
}

TEST(HuggingFaceConfigTest, ReadsLlama3Scaling) {
  ASSERT_OK_AND_ASSIGN(const SourceModel model,
                       SourceModelFromHuggingFace(TinyConfig("llama3_rope"), ""));
  EXPECT_EQ(model.config.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(model.config.rope.factor, 8.0);
  EXPECT_EQ(model.config.rope.low_freq_factor, 1.0);
  EXPECT_EQ(model.config.rope.high_freq_factor, 4.0);
  EXPECT_EQ(model.config.rope.original_context_tokens, 32);
}

TEST(HuggingFaceConfigTest, ReadsOptOfBothNormOrders) {
  ASSERT_OK_AND_ASSIGN(const SourceModel pre, SourceModelFromHuggingFace(TinyConfig("opt"), ""));
  EXPECT_TRUE(pre.config.pre_norm);
  EXPECT_TRUE(pre.config.final_norm);
  EXPECT_EQ(pre.config.position, PositionKind::kLearned);
  EXPECT_EQ(pre.config.learned_position_offset, 2);
  EXPECT_EQ(pre.config.activation, Activation::kRelu);
  ASSERT_OK_AND_ASSIGN(const SourceModel post,
                       SourceModelFromHuggingFace(TinyConfig("opt_postnorm"), ""));
  EXPECT_FALSE(post.config.pre_norm);
  EXPECT_FALSE(post.config.final_norm);
  EXPECT_EQ(post.config.embedding_width, 40);
}

TEST(HuggingFaceConfigTest, ReadsTheExpertsOfMixtral) {
  ASSERT_OK_AND_ASSIGN(const SourceModel model,
                       SourceModelFromHuggingFace(TinyConfig("mixtral"), ""));
  const ExpertConfig& experts = *model.config.experts;
  EXPECT_EQ(experts.count, 4);
  EXPECT_EQ(experts.per_token, 2);
  EXPECT_EQ(experts.ffn_width, 96);
  EXPECT_TRUE(experts.normalise);
  EXPECT_EQ(experts.layers, (std::vector<bool>{true, true}));
  EXPECT_EQ(model.config.rope.theta, 1e6);
}

TEST(HuggingFaceConfigTest, ReadsWhichLayersOfQwen3MoeHaveExperts) {
  ASSERT_OK_AND_ASSIGN(SourceModel model, SourceModelFromHuggingFace(TinyConfig("qwen3_moe"), ""));
  EXPECT_EQ(model.config.qk_norm, QkNorm::kHead);
  EXPECT_EQ(model.config.ffn_width, 160);
  EXPECT_EQ(model.config.experts->count, 8);
  EXPECT_EQ(model.config.experts->per_token, 3);
  EXPECT_EQ(model.config.experts->ffn_width, 52);
  EXPECT_TRUE(model.config.experts->normalise);
  EXPECT_EQ(model.config.experts->layers, (std::vector<bool>{true, false, true}));
  Json every_second = Json::parse(TinyConfig("qwen3_moe"));
  every_second.merge_patch(
      {{"mlp_only_layers", Json::array()}, {"decoder_sparse_step", 2}, {"norm_topk_prob", false}});
  ASSERT_OK_AND_ASSIGN(model, SourceModelFromHuggingFace(every_second.dump(), ""));
  EXPECT_EQ(model.config.experts->layers, (std::vector<bool>{false, true, false}));
  EXPECT_FALSE(model.config.experts->normalise);
  every_second["decoder_sparse_step"] = 4;
  ASSERT_OK_AND_ASSIGN(model, SourceModelFromHuggingFace(every_second.dump(), ""));
  EXPECT_FALSE(model.config.experts.has_value());
}

TEST(HuggingFaceConfigTest, ExpertsThatCannotBeAreRefusedByName) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {{{"num_experts", 100000}}, "num_experts is not an integer from 0 to 4096"},
      {{{"num_experts_per_tok", 9}}, "experts.per_token is 9, not from 1 to 8"},
      {{{"moe_intermediate_size", 0}}, "moe_intermediate_size"},
      {{{"decoder_sparse_step", 0}}, "decoder_sparse_step"},
      {{{"mlp_only_layers", {3}}}, "mlp_only_layers is not an array of layers below 3"},
      {{{"mlp_only_layers", {-1}}}, "mlp_only_layers"},
      {{{"mlp_only_layers", "1"}}, "mlp_only_layers"}};
  for (const auto& [change, message] : cases) {
    Json config = Json::parse(TinyConfig("qwen3_moe"));
    config.merge_patch(change);
    EXPECT_THAT(SourceModelFromHuggingFace(config.dump(), ""),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

TEST(HuggingFaceConfigTest, BothPlacesOfTheRopeBaseAreRead) {
  for (const Json& change :
       {Json{{"rope_theta", 5e5}},
        Json{{"rope_theta", nullptr},
             {"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}}}}) {
    ASSERT_OK_AND_ASSIGN(const SourceModel model,
                         SourceModelFromHuggingFace(LlamaWith(change), ""));
    EXPECT_EQ(model.config.rope.theta, 5e5);
    EXPECT_EQ(model.config.rope.scaling, RopeScaling::kNone);
  }
}

TEST(HuggingFaceConfigTest, OldNameOfTheScalingTypeIsRead) {
  ASSERT_OK_AND_ASSIGN(
      const SourceModel model,
      SourceModelFromHuggingFace(
          LlamaWith({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}), ""));
  EXPECT_EQ(model.config.rope.scaling, RopeScaling::kLinear);
}

TEST(HuggingFaceConfigTest, EndIdsOfBothFilesCount) {
  ASSERT_OK_AND_ASSIGN(const SourceModel model,
                       SourceModelFromHuggingFace(LlamaWith({{"eos_token_id", {2, 9}}}),
                                                  R"({"eos_token_id":[7,2],"temperature":0.6})"));
  EXPECT_EQ(model.config.eos_tokens, (std::vector<int32_t>{7, 2, 9}));
}

TEST(HuggingFaceConfigTest, MissingOrNegativeIdsMeanNone) {
  ASSERT_OK_AND_ASSIGN(
      const SourceModel model,
      SourceModelFromHuggingFace(LlamaWith({{"eos_token_id", -1}, {"bos_token_id", nullptr}}), ""));
  EXPECT_TRUE(model.config.eos_tokens.empty());
  EXPECT_EQ(model.config.bos_token, -1);
}

TEST(HuggingFaceConfigTest, HeadWidthIsDerivedOnlyWhereItIsMissing) {
  ASSERT_OK_AND_ASSIGN(const SourceModel given,
                       SourceModelFromHuggingFace(LlamaWith({{"head_dim", 24}}), ""));
  EXPECT_EQ(given.config.head_width, 24);
  ASSERT_OK_AND_ASSIGN(const SourceModel derived,
                       SourceModelFromHuggingFace(LlamaWith({{"head_dim", nullptr}}), ""));
  EXPECT_EQ(derived.config.head_width, 16);
}

TEST(HuggingFaceConfigTest, ModelTypeDecidesWhereTheArchitectureIsMissing) {
  ASSERT_OK_AND_ASSIGN(const SourceModel model,
                       SourceModelFromHuggingFace(LlamaWith({{"architectures", nullptr}}), ""));
  EXPECT_EQ(model.config.family, "llama");
}

struct RefusedCase {
  const char* name;
  Json changes;
  const char* message;
};

class RefusedConfigTest : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedConfigTest, IsRefusedByName) {
  EXPECT_THAT(SourceModelFromHuggingFace(LlamaWith(GetParam().changes), ""),
              StatusIs(kInvalid, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedConfigTest,
    ::testing::Values(
        RefusedCase{"Architecture",
                    {{"architectures", {"MambaForCausalLM"}}},
                    "architecture MambaForCausalLM is not supported; supported: LlamaForCausalLM"},
        RefusedCase{"ArchitectureIsNumber", {{"architectures", {7}}}, "(not a string)"},
        RefusedCase{"ModelType",
                    {{"architectures", nullptr}, {"model_type", "rwkv"}},
                    "architecture rwkv is not supported"},
        RefusedCase{
            "DynamicScaling",
            {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}},
            "rope_scaling has the type dynamic; default, linear, llama3, yarn and longrope"},
        RefusedCase{
            "YarnWithoutFactor", {{"rope_scaling", {{"rope_type", "yarn"}}}}, "factor is missing"},
        RefusedCase{"YarnFactorZero",
                    {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 0.0}}}},
                    "rope.factor"},
        RefusedCase{"YarnOfDeepSeek",
                    {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 0.7}}}},
                    "mscale is set"},
        RefusedCase{"ScalingIsText", {{"rope_scaling", "linear"}}, "rope_scaling is not an object"},
        RefusedCase{"ScalingWithoutFactor",
                    {{"rope_scaling", {{"rope_type", "linear"}}}},
                    "factor is missing"},
        RefusedCase{"Llama3WithoutContext",
                    {{"rope_scaling",
                      {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0}}}},
                    "original_max_position_embeddings is missing"},
        RefusedCase{"Llama3FrequenciesReversed",
                    {{"rope_scaling",
                      {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 4.0},
                       {"high_freq_factor", 1.0},
                       {"original_max_position_embeddings", 32}}}},
                    "high_freq_factor is not above"},
        RefusedCase{"ThetaZero", {{"rope_theta", 0}}, "rope.theta"},
        RefusedCase{"Quantised",
                    {{"quantization_config", {{"quant_method", "gptq"}}}},
                    "quantization_config is set"},
        RefusedCase{"Activation", {{"hidden_act", "xielu"}}, "hidden_act is xielu, not one of"},
        RefusedCase{"PartialRotation", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
        RefusedCase{"NoLayers", {{"num_hidden_layers", 0}}, "num_hidden_layers is not an integer"},
        RefusedCase{"NegativeWidth", {{"hidden_size", -64}}, "hidden_size"},
        RefusedCase{"FractionalHeads", {{"num_attention_heads", 4.5}}, "num_attention_heads"},
        RefusedCase{"NoHeads", {{"num_attention_heads", 0}}, "num_attention_heads"},
        RefusedCase{"HeadsAreText", {{"num_attention_heads", "4"}}, "num_attention_heads"},
        RefusedCase{"HugeVocabulary", {{"vocab_size", 1LL << 40}}, "vocab_size"},
        RefusedCase{"WidthAbove63Bits", {{"hidden_size", UINT64_MAX}}, "hidden_size"},
        RefusedCase{"HugeWidth", {{"hidden_size", 1LL << 40}, {"head_dim", 16}}, "model_width is"},
        RefusedCase{"HugeContext", {{"max_position_embeddings", 1LL << 33}}, "context_tokens"},
        RefusedCase{"MissingFfn", {{"intermediate_size", nullptr}}, "intermediate_size is missing"},
        RefusedCase{"KvHeadsDoNotDivide", {{"num_key_value_heads", 3}}, "num_kv_heads"},
        RefusedCase{"MoreKvHeadsThanHeads", {{"num_key_value_heads", 8}}, "num_kv_heads"},
        RefusedCase{"OddHeadWidth", {{"head_dim", 15}}, "rotary_width 15 is odd"},
        RefusedCase{"WidthNotAMultipleOfHeads",
                    {{"head_dim", nullptr}, {"hidden_size", 66}},
                    "head_dim is missing"},
        RefusedCase{"EndIdBeyondVocabulary", {{"eos_token_id", 331}}, "eos_token_id"},
        RefusedCase{"EndIdIsText", {{"eos_token_id", {"</s>"}}}, "eos_token_id"},
        RefusedCase{"EpsilonIsText", {{"rms_norm_eps", "small"}}, "rms_norm_eps"},
        RefusedCase{"TieIsNumber", {{"tie_word_embeddings", 1}}, "tie_word_embeddings"}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(HuggingFaceConfigTest, TextThatIsNoConfigIsRefused) {
  EXPECT_THAT(SourceModelFromHuggingFace("", ""), StatusIs(kInvalid, "config.json: not JSON"));
  EXPECT_THAT(SourceModelFromHuggingFace("[]", ""), StatusIs(kInvalid, "not a JSON object"));
  EXPECT_THAT(SourceModelFromHuggingFace(R"({"a":1,"a":2})", ""),
              StatusIs(kInvalid, "a name occurs twice"));
  EXPECT_THAT(SourceModelFromHuggingFace(std::string(100'000, '['), ""),
              StatusIs(kInvalid, "nested deeper than 64"));
  EXPECT_THAT(SourceModelFromHuggingFace(TinyConfig("llama"), "{"),
              StatusIs(kInvalid, "generation_config.json: not JSON"));
}

}  // namespace
}  // namespace nightshift
