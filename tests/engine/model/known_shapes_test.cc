#include "engine/model/known_shapes.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

// Totals of the published checkpoints: what the Hugging Face hub states for the safetensors files,
// less the second copy of a tied head where a file has one (Qwen3), and what PyTorch counts in
// OPT's checkpoints. OPT-66B and OPT-175B: num_parameters() of transformers 4.57 for the
// configuration of table 1 of Zhang et al. 2022, less the second copy of the tied head.
struct Published {
  const char* name;
  int64_t parameters;
};
constexpr Published kPublished[] = {
    {"opt-125m", 125'239'296},
    {"opt-350m", 331'196'416},
    {"opt-1.3b", 1'315'758'080},
    {"opt-2.7b", 2'651'596'800},
    {"opt-6.7b", 6'658'473'984},
    {"opt-13b", 12'853'473'280},
    {"opt-30b", 29'974'540'288},
    {"opt-66b", 66'183'008'256 - 50'272 * 9'216},
    {"opt-175b", 175'222'210'560 - 50'272 * 12'288},
    {"llama-2-7b", 6'738'415'616},
    {"llama-2-13b", 13'015'864'320},
    {"llama-2-70b", 68'976'648'192},
    {"llama-3-8b", 8'030'261'248},
    {"llama-3-70b", 70'553'706'496},
    {"llama-3.1-405b", 405'853'388'800},
    {"mixtral-8x7b", 46'702'792'704},
    {"qwen2-0.5b", 494'032'768},
    {"qwen2-1.5b", 1'543'714'304},
    {"qwen2-7b", 7'615'616'512},
    {"qwen2-72b", 72'706'203'648},
    {"qwen2.5-14b", 14'770'033'664},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen3-0.6b", 751'632'384 - 151'936 * 1024},
    {"qwen3-1.7b", 2'031'739'904 - 151'936 * 2048},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-8b", 8'190'735'360},
    {"qwen3-14b", 14'768'307'200},
    {"qwen3-32b", 32'762'123'264},
    {"qwen3-30b-a3b", 30'532'122'624},
};

KnownShape Shape(const std::string& name) {
  const auto shape = FindKnownShape(name);
  EXPECT_OK(shape);
  return shape.value_or(KnownShape());
}

TEST(KnownShapesTest, HaveAsManyParametersAsThePublishedCheckpoints) {
  for (const Published& published : kPublished) {
    EXPECT_EQ(ParametersOf(Shape(published.name)), published.parameters) << published.name;
  }
}

TEST(KnownShapesTest, BenchShapesAreOfTheSizesThatBenchesName) {
  const KnownShape small = Shape("1b");
  EXPECT_NEAR(static_cast<double>(ParametersOf(small)), 1.17e9, 0.005e9);
  EXPECT_EQ(2 * 2 * small.config.num_layers * small.config.num_kv_heads * small.config.head_width,
            32 << 10);  // bytes of keys and values of a token in bf16
  const KnownShape large = Shape("7b");
  EXPECT_NEAR(static_cast<double>(ParametersOf(large)), 7.38e9, 0.005e9);
  EXPECT_EQ(2 * 2 * large.config.num_layers * large.config.num_kv_heads * large.config.head_width,
            128 << 10);
}

TEST(KnownShapesTest, AreValidModelsThatAManifestKeeps) {
  for (const std::string& name : KnownShapeNames()) {
    const KnownShape shape = Shape(name);
    EXPECT_EQ(shape.name, name);
    EXPECT_OK(ValidateModelConfig(shape.config)) << name;
    const std::string text = ModelConfigToJson(shape.config);
    ASSERT_OK_AND_ASSIGN(const ModelConfig read, ModelConfigFromJson(text));
    EXPECT_EQ(ModelConfigToJson(read), text) << name;
  }
}

TEST(KnownShapesTest, BiasesAreWhereTheSeriesHasThem) {
  const auto has = [](const std::string& shape, const std::string& tensor) {
    const std::vector<TensorSpec> specs = TensorsOf(Shape(shape));
    return std::any_of(specs.begin(), specs.end(),
                       [&](const TensorSpec& spec) { return spec.name == tensor; });
  };
  EXPECT_TRUE(has("opt-125m", "layers.11.down.bias"));
  EXPECT_TRUE(has("qwen2-7b", "layers.0.k.bias"));
  EXPECT_FALSE(has("qwen2-7b", "layers.0.o.bias"));
  EXPECT_FALSE(has("llama-2-7b", "layers.0.q.bias"));
  EXPECT_FALSE(has("opt-350m", "final_norm.weight"));
}

TEST(KnownShapesTest, NamesAreFoundInAnyCaseAndOthersRefusedWithTheList) {
  EXPECT_EQ(Shape("OPT-30B").name, "opt-30b");
  EXPECT_THAT(FindKnownShape("opt-31b"),
              StatusIs(absl::StatusCode::kInvalidArgument, "opt-31b; there are tiny, 1b, 7b"));
  EXPECT_FALSE(FindKnownShape("").ok());
}

}  // namespace
}  // namespace nightshift
