#include "engine/model/huggingface_config.h"

#include <cmath>
#include <string>
#include <utility>
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

// The config of a tiny model with some members replaced; null removes one.
std::string With(const std::string& model, const Json& changes) {
  Json config = Json::parse(TinyConfig(model));
  config.merge_patch(changes.is_null() ? Json::object() : changes);
  return config.dump();
}

std::string LlamaWith(const Json& changes) {
  return With("llama", changes);
}

absl::StatusOr<ModelConfig> Read(const std::string& model, const Json& changes) {
  absl::StatusOr<SourceModel> source = SourceModelFromHuggingFace(With(model, changes), "");
  if (!source.ok()) {
    return source.status();
  }
  return source->config;
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

TEST(HuggingFaceConfigTest, ReadsWhichLayersSlide) {
  struct Case {
    const char* model;
    Json changes;
    int64_t window;
    std::vector<bool> layers;
  };
  const std::vector<Case> cases = {
      {"mistral", {}, 8, {true, true, true}},
      {"mistral", {{"sliding_window", nullptr}}, 0, {}},
      {"mistral", {{"sliding_window", 256}}, 0, {}},  // as long as the context
      {"qwen2", {{"sliding_window", 8}}, 0, {}},      // use_sliding_window is false
      {"qwen2_sliding", {}, 8, {false, true, true}},
      {"qwen2_sliding", {{"layer_types", nullptr}}, 8, {false, true, true}},
      {"qwen2_sliding", {{"layer_types", nullptr}, {"max_window_layers", 3}}, 0, {}},
      {"gemma2", {}, 8, {true, false, true, false}},
      {"gemma2", {{"layer_types", nullptr}}, 8, {true, false, true, false}},
      {"gemma3", {}, 8, {true, true, false, true}},
      {"gemma3", {{"layer_types", nullptr}}, 8, {true, true, false, true}},
      {"gemma3",
       {{"layer_types", nullptr},
        {"sliding_window_pattern", nullptr},
        {"_sliding_window_pattern", nullptr}},
       8,
       {true, true, true, true}},
      {"phi3", {{"sliding_window", 100}}, 100, {true, true, true}},
  };
  for (const Case& one : cases) {
    ASSERT_OK_AND_ASSIGN(const ModelConfig config, Read(one.model, one.changes));
    EXPECT_EQ(config.sliding_window, one.window) << one.model << one.changes;
    EXPECT_EQ(config.sliding_layers, one.layers) << one.model << one.changes;
  }
}

TEST(HuggingFaceConfigTest, ReadsTheNumbersOfGemma) {
  ASSERT_OK_AND_ASSIGN(ModelConfig config, Read("gemma2", {}));
  EXPECT_EQ(config.attention_softcap, 2.0F);
  EXPECT_EQ(config.logit_softcap, 10.0F);
  EXPECT_NEAR(config.attention_scale, 1.0 / std::sqrt(24.0), 1e-7);
  EXPECT_NEAR(config.embedding_multiplier, std::sqrt(96.0), 1e-6);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  // Null means none; a file that does not name a cap has that of the published models.
  Json json = Json::parse(TinyConfig("gemma2"));
  json["attn_logit_softcapping"] = nullptr;
  json.erase("final_logit_softcapping");
  ASSERT_OK_AND_ASSIGN(const SourceModel model, SourceModelFromHuggingFace(json.dump(), ""));
  EXPECT_EQ(model.config.attention_softcap, 0.0F);
  EXPECT_EQ(model.config.logit_softcap, 30.0F);
  ASSERT_OK_AND_ASSIGN(config, Read("gemma3_linear", {}));
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(config.rope.theta, 1e6);
  ASSERT_TRUE(config.sliding_rope.has_value());
  EXPECT_EQ(config.sliding_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(config.sliding_rope->theta, 1e4);
}

TEST(HuggingFaceConfigTest, ReadsRotationByLayerType) {
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig config,
      Read("gemma3",
           {{"rope_theta", nullptr},
            {"rope_parameters",
             {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
              {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}}}}));
  EXPECT_EQ(config.rope.factor, 8.0);
  EXPECT_EQ(config.rope.theta, 2e6);
  EXPECT_EQ(config.sliding_rope->theta, 3e4);
}

TEST(HuggingFaceConfigTest, ReadsTheTextModelOfOneThatTakesImages) {
  Json text = Json::parse(TinyConfig("gemma3"));
  for (const char* name : {"architectures", "eos_token_id", "head_dim", "num_attention_heads"}) {
    text.erase(name);
  }
  const Json json = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                     {"model_type", "gemma3"},
                     {"eos_token_id", {2, 106}},
                     {"vision_config", {{"hidden_size", 1152}}},
                     {"text_config", text}};
  ASSERT_OK_AND_ASSIGN(const SourceModel model, SourceModelFromHuggingFace(json.dump(), ""));
  EXPECT_TRUE(model.has_image_encoder);
  EXPECT_EQ(model.notes.size(), 1U);
  EXPECT_EQ(model.config.family, "gemma3");
  EXPECT_EQ(model.config.model_width, 96);
  EXPECT_EQ(model.config.num_heads, 8);  // left out: as in the 4B
  EXPECT_EQ(model.config.head_width, 256);
  EXPECT_EQ(model.config.eos_tokens, (std::vector<int32_t>{2, 106}));
}

TEST(HuggingFaceConfigTest, ReadsTheMultipliersOfGranite) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, Read("granite", {}));
  EXPECT_EQ(config.embedding_multiplier, 3.0F);
  EXPECT_EQ(config.residual_multiplier, 0.6F);
  EXPECT_EQ(config.attention_scale, 0.15F);
  EXPECT_EQ(config.logit_multiplier, 2.0F);
}

TEST(HuggingFaceConfigTest, ReadsYarn) {
  ASSERT_OK_AND_ASSIGN(ModelConfig config, Read("llama_yarn_rope", {}));
  EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.rope.original_context_tokens, 32);
  EXPECT_NEAR(config.rope.magnitude, 1.0 + 0.1 * std::log(4.0), 1e-12);
  ASSERT_OK_AND_ASSIGN(
      config, Read("llama_yarn_rope", {{"rope_scaling",
                                        {{"attention_factor", 1.5},
                                         {"beta_fast", 16},
                                         {"truncate", false},
                                         {"original_max_position_embeddings", nullptr}}}}));
  EXPECT_EQ(config.rope.magnitude, 1.5);
  EXPECT_EQ(config.rope.beta_fast, 16.0);
  EXPECT_FALSE(config.rope.truncate);
  EXPECT_EQ(config.rope.original_context_tokens, 128);  // the context
}

TEST(HuggingFaceConfigTest, LongRopeKeepsTheContextOfItsShortFactors) {
  ASSERT_OK_AND_ASSIGN(const SourceModel model,
                       SourceModelFromHuggingFace(TinyConfig("phi3_longrope"), ""));
  EXPECT_EQ(model.config.context_tokens, 96);
  ASSERT_EQ(model.notes.size(), 1U);
  EXPECT_NE(model.notes[0].find("96 tokens, not 384"), std::string::npos);
  EXPECT_EQ(model.config.rope.rotary_width, 12);
  EXPECT_EQ(model.config.rope.divisors.back(), 2.5F);
  EXPECT_NEAR(model.config.rope.magnitude, std::sqrt(1.0 + std::log(4.0) / std::log(96.0)), 1e-12);
}

TEST(HuggingFaceConfigTest, FalconNeedNotNameItsContext) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                       Read("falcon", {{"max_position_embeddings", nullptr}}));
  EXPECT_EQ(config.context_tokens, 2048);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_TRUE(config.shared_norm);
}

struct FamilyRefusal {
  const char* name;
  const char* model;
  Json changes;
  const char* message;
};

class RefusedFamilyConfigTest : public ::testing::TestWithParam<FamilyRefusal> {};

TEST_P(RefusedFamilyConfigTest, IsRefusedByName) {
  EXPECT_THAT(Read(GetParam().model, GetParam().changes), StatusIs(kInvalid, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedFamilyConfigTest,
    ::testing::Values(
        FamilyRefusal{"WindowZero", "mistral", {{"sliding_window", 0}}, "sliding_window"},
        FamilyRefusal{"WindowNegative", "mistral", {{"sliding_window", -4}}, "sliding_window"},
        FamilyRefusal{"WindowIsText", "mistral", {{"sliding_window", "8"}}, "sliding_window"},
        FamilyRefusal{"LayersOfAnotherNumber",
                      "gemma2",
                      {{"layer_types", {"full_attention"}}},
                      "layer_types is not a list of 4 layers"},
        FamilyRefusal{"LayersOfAnotherType",
                      "gemma2",
                      {{"layer_types", {"full_attention", "chunked_attention", 1, nullptr}}},
                      "neither full_attention nor sliding_attention"},
        FamilyRefusal{"CapNegative", "gemma2", {{"attn_logit_softcapping", -50.0}}, "softcapping"},
        FamilyRefusal{"CapZero", "gemma2", {{"final_logit_softcapping", 0}}, "is not above 0"},
        FamilyRefusal{"ScoreScaleZero",
                      "gemma2",
                      {{"query_pre_attn_scalar", 0}},
                      "query_pre_attn_scalar is not above 0"},
        FamilyRefusal{
            "GemmaWithoutHeadWidth", "gemma3", {{"head_dim", nullptr}}, "head_dim is missing"},
        FamilyRefusal{"BothDirections",
                      "gemma3",
                      {{"use_bidirectional_attention", true}},
                      "use_bidirectional_attention is true"},
        FamilyRefusal{"PatternZero",
                      "gemma3",
                      {{"layer_types", nullptr}, {"sliding_window_pattern", 0}},
                      "sliding_window_pattern"},
        FamilyRefusal{"RotationByTypeElsewhere",
                      "qwen2",
                      {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}},
                      "rotation by layer type belongs to Gemma 3"},
        FamilyRefusal{
            "Alibi", "falcon", {{"alibi", true}}, "alibi is true, which is not supported"},
        FamilyRefusal{"NewDecoder",
                      "falcon",
                      {{"new_decoder_architecture", true}},
                      "new_decoder_architecture is true"},
        FamilyRefusal{
            "SequentialFalcon", "falcon", {{"parallel_attn", false}}, "parallel_attn is false"},
        FamilyRefusal{"StableLmHeadNorm", "stablelm", {{"qk_layernorm", true}}, "qk_layernorm"},
        FamilyRefusal{"RotationAboveOne",
                      "stablelm",
                      {{"partial_rotary_factor", 1.5}},
                      "partial_rotary_factor"},
        FamilyRefusal{"NoRotation", "gpt_neox", {{"rotary_pct", 0}}, "rotary_width"},
        FamilyRefusal{"OddRotation", "gpt_neox", {{"rotary_pct", 0.2}}, "rotary_width 3 is odd"},
        FamilyRefusal{"LogitsDividedByZero", "granite", {{"logits_scaling", 0}}, "logits_scaling"},
        FamilyRefusal{
            "NegativeBranches", "granite", {{"residual_multiplier", -0.5}}, "residual_multiplier"},
        FamilyRefusal{
            "ScoresTimesZero", "granite", {{"attention_multiplier", 0.0}}, "attention_multiplier"},
        FamilyRefusal{"LongRopeOfAnotherLength",
                      "phi3_longrope",
                      {{"rope_scaling", {{"short_factor", {1.0, 2.0}}}}},
                      "short_factor is not a list of 6 numbers"},
        FamilyRefusal{"LongRopeOfTexts",
                      "phi3_longrope",
                      {{"rope_scaling", {{"short_factor", {1, 1, 1, 1, 1, "x"}}}}},
                      "short_factor holds something that is not a number"},
        FamilyRefusal{"LongRopeNegative",
                      "phi3_longrope",
                      {{"rope_scaling", {{"short_factor", {1, 1, 1, 1, 1, -1}}}}},
                      "not positive"}),
    [](const auto& instance) { return std::string(instance.param.name); });

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
