#include "engine/model/tensor_map.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/checkpoint.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

class TensorMapTest : public ::testing::Test {
 protected:
  void Open(const std::string& model) {
    ASSERT_OK_AND_ASSIGN(Checkpoint checkpoint,
                         OpenCheckpoint(std::string(TEST_DATA_DIR) + "/tiny/" + model));
    model_ = checkpoint.model;
    tensors_ = checkpoint.tensors->tensors();
  }
  SourceTensor& Tensor(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&name](const SourceTensor& tensor) { return tensor.name == name; });
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors_, [&name](const SourceTensor& tensor) { return tensor.name == name; });
  }
  void Add(const std::string& name, const std::vector<int64_t>& shape) {
    SourceTensor tensor = tensors_.front();
    tensor.name = name;
    tensor.shape = shape;
    tensors_.push_back(tensor);
  }
  absl::StatusOr<TensorMap> Map() {
    return MapTensors(model_, SourceFormat::kSafetensors, tensors_);
  }

  SourceModel model_;
  std::vector<SourceTensor> tensors_;
};

TEST_F(TensorMapTest, OptFilesMayLackTheModelPrefix) {
  Open("opt");
  for (SourceTensor& tensor : tensors_) {
    tensor.name = tensor.name.substr(std::string("model.").size());
  }
  ASSERT_OK_AND_ASSIGN(const TensorMap map, Map());
  EXPECT_EQ(map.tensors.size(), tensors_.size());
}

TEST_F(TensorMapTest, MissingTensorIsNamed) {
  Open("llama");
  Remove("model.layers.1.mlp.down_proj.weight");
  EXPECT_THAT(Map(), StatusIs(kInvalid, "model.layers.1.mlp.down_proj.weight is missing"));
}

TEST_F(TensorMapTest, AnotherShapeIsNamed) {
  Open("llama");
  Tensor("model.norm.weight").shape = {65};
  EXPECT_THAT(Map(), StatusIs(kInvalid, "model.norm.weight has the shape [65]"));
}

TEST_F(TensorMapTest, TransposedMatrixIsNamed) {
  Open("llama");
  Tensor("model.layers.0.mlp.up_proj.weight").shape = {64, 172};
  EXPECT_THAT(Map(), StatusIs(kInvalid, "the configuration asks for [172, 64]"));
}

TEST_F(TensorMapTest, TensorWithoutUseIsNamed) {
  Open("llama");
  Add("model.layers.0.self_attn.q_norm.weight", {16});
  EXPECT_THAT(Map(), StatusIs(kInvalid, "q_norm.weight has no use"));
}

TEST_F(TensorMapTest, TensorOfALayerTooManyIsNamed) {
  Open("llama");
  Add("model.layers.3.input_layernorm.weight", {64});
  EXPECT_THAT(Map(), StatusIs(kInvalid, "model.layers.3.input_layernorm.weight has no use"));
}

TEST_F(TensorMapTest, RotaryTablesAndCausalMasksArePassedOver) {
  Open("llama");
  Add("model.layers.0.self_attn.rotary_emb.inv_freq", {8});
  EXPECT_OK(Map());
  Open("gpt_neox");
  Add("gpt_neox.layers.0.attention.rotary_emb.inv_freq", {2});
  Add("gpt_neox.layers.0.attention.masked_bias", {1});
  Add("gpt_neox.layers.0.attention.bias", {1, 1, 128, 128});
  tensors_.back().is_mask = true;
  EXPECT_OK(Map());
}

TEST_F(TensorMapTest, StoredBiasesAreUsedWhereNothingIsSaid) {
  Open("llama");
  model_.qkv_bias.reset();
  Add("model.layers.0.self_attn.q_proj.bias", {64});
  ASSERT_OK_AND_ASSIGN(const TensorMap map, Map());
  EXPECT_TRUE(std::any_of(map.tensors.begin(), map.tensors.end(), [](const TensorOrigin& origin) {
    return origin.spec.name == "layers.0.q.bias";
  }));
}

TEST_F(TensorMapTest, BiasesMustBeAsDeclared) {
  Open("llama");
  Add("model.layers.0.self_attn.q_proj.bias", {64});
  EXPECT_THAT(Map(), StatusIs(kInvalid, "q_proj.bias is stored, the configuration says"));
  Open("llama");
  model_.ffn_bias = true;
  EXPECT_THAT(Map(), StatusIs(kInvalid, "gate_proj.bias is missing, the configuration says"));
}

TEST_F(TensorMapTest, HeadIsTiedWhereNothingIsSaidAndNoneIsStored) {
  Open("llama");
  model_.tied_head.reset();
  ASSERT_OK_AND_ASSIGN(TensorMap map, Map());
  EXPECT_FALSE(map.config.tied_head);
  Remove("lm_head.weight");
  ASSERT_OK_AND_ASSIGN(map, Map());
  EXPECT_TRUE(map.config.tied_head);
}

TEST_F(TensorMapTest, DeclaredTieWinsOverAStoredHead) {
  Open("llama");
  model_.tied_head = true;
  ASSERT_OK_AND_ASSIGN(const TensorMap map, Map());
  EXPECT_TRUE(map.config.tied_head);
  EXPECT_EQ(map.notes.size(), 1U);
}

TEST_F(TensorMapTest, HeadThatIsDeclaredAndMissingIsNamed) {
  Open("llama");
  model_.tied_head = false;
  Remove("lm_head.weight");
  EXPECT_THAT(Map(), StatusIs(kInvalid, "lm_head.weight is missing"));
}

TEST_F(TensorMapTest, NormsWithoutWeightsAreFilledWhereDeclared) {
  Open("opt");
  Remove("model.decoder.layers.2.final_layer_norm.weight");
  Remove("model.decoder.layers.2.final_layer_norm.bias");
  EXPECT_THAT(Map(), StatusIs(kInvalid, "layers.2.final_layer_norm.weight is missing"));
  model_.plain_norms = true;
  ASSERT_OK_AND_ASSIGN(const TensorMap map, Map());
  for (const TensorOrigin& origin : map.tensors) {
    if (origin.spec.name == "layers.2.ffn_norm.weight") {
      EXPECT_EQ(origin.source, nullptr);
      EXPECT_EQ(origin.fill, 1.0F);
    }
  }
}

TEST_F(TensorMapTest, QuantisedVectorIsRefused) {
  Open("llama");
  Tensor("model.norm.weight").dtype = DType::kI8G32;
  EXPECT_THAT(Map(), StatusIs(kInvalid, "model.norm.weight is a vector of type I8G32"));
}

const TensorOrigin& OriginOf(const TensorMap& map, const std::string& name) {
  return *std::find_if(map.tensors.begin(), map.tensors.end(),
                       [&name](const TensorOrigin& origin) { return origin.spec.name == name; });
}

TEST_F(TensorMapTest, RowsOfStackedMatricesAreFoundOneBehindTheOther) {
  Open("phi3");  // 4 heads of 16 and as many keys and values
  ASSERT_OK_AND_ASSIGN(const TensorMap map, Map());
  const TensorOrigin& k = OriginOf(map, "layers.1.k.weight");
  EXPECT_EQ(k.source->name, "model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(k.SourceRow(0), 64);
  EXPECT_EQ(k.SourceRow(63), 127);
  EXPECT_EQ(OriginOf(map, "layers.1.v.weight").SourceRow(5), 133);
  EXPECT_EQ(OriginOf(map, "layers.1.gate.weight").SourceRow(171), 171);
  EXPECT_EQ(OriginOf(map, "layers.1.up.weight").SourceRow(171), 343);
}

TEST_F(TensorMapTest, RowsOfEachHeadAreFoundBesideEachOther) {
  Open("gpt_neox");  // per head: q, k, v of 16 rows
  ASSERT_OK_AND_ASSIGN(const TensorMap map, Map());
  EXPECT_EQ(OriginOf(map, "layers.0.q.weight").SourceRow(17), 48 + 1);
  EXPECT_EQ(OriginOf(map, "layers.0.k.weight").SourceRow(17), 48 + 16 + 1);
  EXPECT_EQ(OriginOf(map, "layers.0.v.bias").SourceRow(63), 3 * 48 + 32 + 15);
}

TEST_F(TensorMapTest, FusedMatrixOfAnotherHeightIsNamed) {
  Open("phi3");
  Tensor("model.layers.0.self_attn.qkv_proj.weight").shape = {191, 64};
  EXPECT_THAT(Map(), StatusIs(kInvalid, "the configuration asks for [192, 64]"));
}

TEST_F(TensorMapTest, OneIsAddedToNormsThatAreStoredLessOne) {
  Open("gemma3");
  ASSERT_OK_AND_ASSIGN(TensorMap map, Map());
  EXPECT_EQ(OriginOf(map, "layers.0.q_norm.weight").added, 1.0F);
  EXPECT_EQ(OriginOf(map, "final_norm.weight").added, 1.0F);
  EXPECT_EQ(OriginOf(map, "layers.0.q.weight").added, 0.0F);
  Open("qwen3");
  ASSERT_OK_AND_ASSIGN(map, Map());
  EXPECT_EQ(OriginOf(map, "layers.0.q_norm.weight").added, 0.0F);
}

TEST_F(TensorMapTest, TheTextModelOfOneThatTakesImagesIsFoundUnderEitherPrefix) {
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    Open("gemma3");
    for (SourceTensor& tensor : tensors_) {
      tensor.name = prefix + tensor.name.substr(std::string("model.").size());
    }
    Add("vision_tower.vision_model.embeddings.position_embedding.weight", {4, 4});
    Add("model.multi_modal_projector.mm_soft_emb_norm.weight", {4});
    EXPECT_THAT(Map(), StatusIs(kInvalid, "has no use"));
    model_.has_image_encoder = true;
    EXPECT_OK(Map());
    Add("audio_tower.weight", {4});
    EXPECT_THAT(Map(), StatusIs(kInvalid, "audio_tower.weight has no use"));
  }
}

}  // namespace
}  // namespace nightshift
