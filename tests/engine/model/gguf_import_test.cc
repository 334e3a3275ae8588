#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model/pack_import.h"
#include "kernels/convert.h"
#include "tests/support/load_shard.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gguf.h"

namespace nightshift {
namespace {

class GgufImportTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Pack>> Import(const TinyGguf& source,
                                               const WeightTypes& types = {}) {
    const std::string path = folder_.path() + "/tiny.gguf";
    WriteFileBytes(path, source.writer.bytes());
    auto checkpoint = OpenCheckpoint(path);
    if (!checkpoint.ok()) {
      return checkpoint.status();
    }
    const auto imported =
        ImportPack(*checkpoint, {.output = folder_.path() + "/pack", .types = types});
    if (!imported.ok()) {
      return imported.status();
    }
    notes_ = imported->notes;
    return Pack::Open(folder_.path() + "/pack");
  }
  void ImportTiny() {
    source_.AddTensors();
    ASSERT_OK_AND_ASSIGN(pack_, Import(source_));
  }
  std::vector<std::byte> Load(const std::string& name, ComputeType compute_type) {
    auto expanded = LoadExpanded(*pack_, *pack_->Find(name), compute_type);
    EXPECT_OK(expanded);
    return *std::move(expanded);
  }
  // Element (n, k) of a loaded f32 tensor, by pack_format.md; its inputs are a multiple of 32.
  static float Element(const std::vector<std::byte>& loaded, int64_t n, int64_t k, int64_t inputs) {
    float value = 0.0F;
    const int64_t index = n / 64 * 64 * inputs + k / 2 * 128 + n % 64 * 2 + k % 2;
    std::memcpy(&value, loaded.data() + 4 * index, sizeof(value));
    return value;
  }
  // Expects the tensor `name` to hold the values of `source_name`, its row n being row_of(n) there.
  template <typename RowOf>  // row_of may count over a stack of matrices
  void ExpectValues(const std::string& name, const std::string& source_name, RowOf row_of) {
    const TensorEntry& tensor = *pack_->Find(name);
    const std::vector<double>& values = source_.tensors.at(source_name).values;
    const std::vector<std::byte> loaded = Load(name, ComputeType::kF32);
    for (int64_t n = 0; n < tensor.outputs; ++n) {
      for (int64_t k = 0; k < tensor.inputs; ++k) {
        const double expected = values[static_cast<size_t>(row_of(n) * tensor.inputs + k)];
        ASSERT_EQ(Element(loaded, n, k, tensor.inputs), static_cast<float>(expected))
            << name << " " << n << " " << k;
      }
    }
  }

  TemporaryFolder folder_;
  TinyGguf source_;
  std::unique_ptr<Pack> pack_;
  std::vector<std::string> notes_;
};

int64_t SameRow(int64_t n) {
  return n;
}

TEST_F(GgufImportTest, KeepsTheValuesOfQuantisedTypes) {
  ImportTiny();
  EXPECT_EQ(pack_->Find("embed")->dtype, DType::kI8G32);
  EXPECT_EQ(pack_->Find("layers.0.gate.weight")->dtype, DType::kI4G32);
  EXPECT_EQ(pack_->Find("layers.0.up.weight")->dtype, DType::kU4G32);
  ExpectValues("embed", "token_embd.weight", SameRow);
  ExpectValues("layers.0.v.weight", "blk.0.attn_v.weight", SameRow);
  ExpectValues("layers.0.gate.weight", "blk.0.ffn_gate.weight", SameRow);
  ExpectValues("layers.0.up.weight", "blk.0.ffn_up.weight", SameRow);
  ExpectValues("layers.0.down.weight", "blk.0.ffn_down.weight", SameRow);
}

TEST_F(GgufImportTest, WhatIsQuantisedIsNotQuantisedAgainUnasked) {
  source_.AddTensors();
  for (const DType dtype : {DType::kI8G64, DType::kBF16, DType::kF32}) {
    EXPECT_THAT(Import(source_, {.matrices = dtype}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "tensor blk.0.attn_q.weight is Q4_1 in the source and was asked for as " +
                             std::string(DTypeName(dtype))));
  }
  EXPECT_THAT(Import(source_, {.embeddings = DType::kU4G64}),
              StatusIs(absl::StatusCode::kInvalidArgument, "token_embd.weight is Q8_0"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/pack"));
}

TEST_F(GgufImportTest, QuantisedMatricesOfAsManyBitsAreKept) {
  TinyGguf four_bits;
  four_bits.Add("token_embd.weight", kTinyGgufVocabulary, kTinyGgufWidth, kGgufQ8_0);
  four_bits.Add("output_norm.weight", 1, kTinyGgufWidth, kGgufF32);
  for (const char* norm : {"attn_norm", "ffn_norm"}) {
    four_bits.Add(std::string("blk.0.") + norm + ".weight", 1, kTinyGgufWidth, kGgufF32);
  }
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
    four_bits.Add(std::string("blk.0.") + name + ".weight", kTinyGgufWidth, kTinyGgufWidth,
                  kGgufQ4_1);
  }
  four_bits.Add("blk.0.attn_output.weight", kTinyGgufWidth, kTinyGgufWidth, kGgufF16);
  four_bits.Add("blk.0.ffn_gate.weight", kTinyGgufFfn, kTinyGgufWidth, kGgufQ4_0);
  four_bits.Add("blk.0.ffn_up.weight", kTinyGgufFfn, kTinyGgufWidth, kGgufQ4_1);
  four_bits.Add("blk.0.ffn_down.weight", kTinyGgufWidth, kTinyGgufFfn, kGgufF32);
  ASSERT_OK_AND_ASSIGN(pack_, Import(four_bits, {.matrices = DType::kU4G64}));
  EXPECT_EQ(pack_->Find("embed")->dtype, DType::kI8G32);
  EXPECT_EQ(pack_->Find("layers.0.q.weight")->dtype, DType::kU4G32);
  EXPECT_EQ(pack_->Find("layers.0.gate.weight")->dtype, DType::kI4G32);
  EXPECT_EQ(pack_->Find("layers.0.o.weight")->dtype, DType::kU4G64);
  EXPECT_EQ(pack_->Find("layers.0.o.weight")->source_type, "F16");
  EXPECT_EQ(pack_->Find("layers.0.down.weight")->dtype, DType::kU4G64);
  EXPECT_EQ(notes_.back(), "6 quantised matrices are kept as the source has them");
}

// Expanding takes nothing from the values, nor from the order of rows.
TEST_F(GgufImportTest, RequantisingToF32KeepsEveryValue) {
  source_.AddTensors();
  ASSERT_OK_AND_ASSIGN(pack_, Import(source_, {.matrices = DType::kF32, .requantises = true}));
  EXPECT_EQ(pack_->Find("layers.0.up.weight")->dtype, DType::kF32);
  EXPECT_EQ(pack_->Find("layers.0.up.weight")->source_type, "Q4_1");
  ExpectValues("embed", "token_embd.weight", SameRow);
  ExpectValues("layers.0.v.weight", "blk.0.attn_v.weight", SameRow);
  ExpectValues("layers.0.gate.weight", "blk.0.ffn_gate.weight", SameRow);
  ExpectValues("layers.0.down.weight", "blk.0.ffn_down.weight", SameRow);
}

// GGUF's row 2i + j of a head is the model's row i + j * half (j = 0, 1).
TEST_F(GgufImportTest, PutsRowsOfQueriesAndKeysBackInOrder) {
  ImportTiny();
  const auto paired_row = [](int64_t n) {
    const int64_t in_head = n % kTinyGgufHeadWidth;
    const int64_t half = kTinyGgufHeadWidth / 2;
    return n - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  };
  ExpectValues("layers.0.q.weight", "blk.0.attn_q.weight", paired_row);
  ExpectValues("layers.0.k.weight", "blk.0.attn_k.weight", paired_row);
}

// Experts lie in one tensor [X, F, E]; each becomes tensors of its own.
TEST_F(GgufImportTest, TakesExpertsOutOfTheirStack) {
  source_.AddExpertTensors(3);
  ASSERT_OK_AND_ASSIGN(pack_, Import(source_));
  const ModelConfig& config = pack_->manifest().config;
  EXPECT_EQ(config.family, "mixtral");
  EXPECT_EQ(config.experts->count, 3);
  EXPECT_EQ(config.experts->per_token, 2);
  EXPECT_EQ(config.experts->ffn_width, kTinyGgufFfn);
  EXPECT_EQ(config.experts->layers, std::vector<bool>{true});
  ExpectValues("layers.0.router.weight", "blk.0.ffn_gate_inp.weight", SameRow);
  for (int64_t expert = 0; expert < 3; ++expert) {
    const std::string name = "layers.0.experts." + std::to_string(expert);
    const auto inner_row = [expert](int64_t n) { return expert * kTinyGgufFfn + n; };
    ExpectValues(name + ".gate.weight", "blk.0.ffn_gate_exps.weight", inner_row);
    ExpectValues(name + ".up.weight", "blk.0.ffn_up_exps.weight", inner_row);
    ExpectValues(name + ".down.weight", "blk.0.ffn_down_exps.weight",
                 [expert](int64_t n) { return expert * kTinyGgufWidth + n; });
  }
}

TEST_F(GgufImportTest, StackOfAnotherShapeIsRefused) {
  source_.writer.Integer("llama.expert_feed_forward_length", 64);
  source_.AddExpertTensors(3);
  EXPECT_THAT(Import(source_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "blk.0.ffn_gate_exps.weight has the shape [3, 96, 64]; the configuration "
                       "asks for [3, 64, 64]"));
}

TEST_F(GgufImportTest, RoundsExpandedValuesToBf16) {
  ImportTiny();
  const std::vector<std::byte> exact = Load("layers.0.up.weight", ComputeType::kF32);
  const std::vector<std::byte> rounded = Load("layers.0.up.weight", ComputeType::kBF16);
  ASSERT_EQ(rounded.size() * 2, exact.size());
  for (size_t i = 0; i < rounded.size() / 2; ++i) {
    float value = 0.0F;
    uint16_t bits = 0;
    std::memcpy(&value, exact.data() + 4 * i, sizeof(value));
    std::memcpy(&bits, rounded.data() + 2 * i, sizeof(bits));
    ASSERT_EQ(bits, F32ToBF16(value));
  }
}

TEST_F(GgufImportTest, Version2ReadsAsVersion3) {
  source_.writer.version = 2;
  ImportTiny();
  ExpectValues("embed", "token_embd.weight", SameRow);
}

TEST_F(GgufImportTest, ReadsTheConfiguration) {
  source_.writer.Number("llama.rope.freq_base", 100000.0F);
  source_.writer.Integer("tokenizer.ggml.bos_token_id", 1);
  source_.writer.Integer("tokenizer.ggml.eos_token_id", 2);
  source_.writer.Integer("tokenizer.ggml.eot_token_id", 7);
  ImportTiny();
  const ModelConfig& config = pack_->manifest().config;
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.vocabulary, kTinyGgufVocabulary);
  EXPECT_EQ(config.num_kv_heads, kTinyGgufHeads);
  EXPECT_EQ(config.head_width, kTinyGgufHeadWidth);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, (std::vector<int32_t>{2, 7}));
  EXPECT_TRUE(config.tied_head);
}

TEST_F(GgufImportTest, LinearScalingIsKept) {
  source_.writer.Text("llama.rope.scaling.type", "linear");
  source_.writer.Number("llama.rope.scaling.factor", 4.0F);
  ImportTiny();
  EXPECT_EQ(pack_->manifest().config.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(pack_->manifest().config.rope.factor, 4.0);
}

TEST_F(GgufImportTest, TableOfDivisorsIsKept) {
  source_.Add("rope_freqs.weight", 1, kTinyGgufHeadWidth / 2, kGgufF32);
  for (double& value : source_.tensors["rope_freqs.weight"].values) {
    value = std::abs(value);
  }
  std::string bytes;
  for (const double value : source_.tensors["rope_freqs.weight"].values) {
    AppendNumber(bytes, static_cast<float>(value));
  }
  TinyGguf fresh;
  fresh.writer.Tensor("rope_freqs.weight", {kTinyGgufHeadWidth / 2}, kGgufF32, bytes);
  fresh.AddTensors();
  ASSERT_OK_AND_ASSIGN(pack_, Import(fresh));
  const RopeConfig& rope = pack_->manifest().config.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kDivisors);
  ASSERT_EQ(rope.divisors.size(), static_cast<size_t>(kTinyGgufHeadWidth / 2));
  for (size_t i = 0; i < rope.divisors.size(); ++i) {
    EXPECT_EQ(static_cast<double>(rope.divisors[i]),
              source_.tensors["rope_freqs.weight"].values[i]);
  }
}

TEST_F(GgufImportTest, YarnIsKept) {
  source_.writer.Text("llama.rope.scaling.type", "yarn");
  source_.writer.Number("llama.rope.scaling.factor", 4.0F);
  source_.writer.Integer("llama.rope.scaling.original_context_length", 32);
  source_.writer.Number("llama.rope.scaling.yarn_beta_fast", 16.0F);
  ImportTiny();
  const RopeConfig& rope = pack_->manifest().config.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.original_context_tokens, 32);
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 1.0);
  EXPECT_NEAR(rope.magnitude, 1.0 + 0.1 * std::log(4.0), 1e-12);
}

TEST_F(GgufImportTest, LongRopeKeepsItsShortFactorsAndTheirContext) {
  std::string factors;
  for (int i = 0; i < kTinyGgufHeadWidth / 2; ++i) {
    AppendNumber(factors, 1.0F + 0.5F * static_cast<float>(i));
  }
  source_.writer.Tensor("rope_factors_short.weight", {kTinyGgufHeadWidth / 2}, kGgufF32, factors);
  source_.writer.Tensor("rope_factors_long.weight", {kTinyGgufHeadWidth / 2}, kGgufF32, factors);
  source_.writer.Number("llama.rope.scaling.attn_factor", 1.25F);
  source_.writer.Integer("llama.rope.scaling.original_context_length", 64);
  ImportTiny();
  const ModelConfig& config = pack_->manifest().config;
  EXPECT_EQ(config.context_tokens, 64);
  EXPECT_EQ(config.rope.magnitude, 1.25);
  ASSERT_EQ(config.rope.scaling, RopeScaling::kDivisors);
  EXPECT_EQ(config.rope.divisors[3], 2.5F);
}

TEST_F(GgufImportTest, WindowIsOfEveryLayerOrOfThoseListed) {
  source_.writer.Integer("llama.attention.sliding_window", 8);
  ImportTiny();
  EXPECT_EQ(pack_->manifest().config.sliding_window, 8);
  EXPECT_EQ(pack_->manifest().config.sliding_layers, std::vector<bool>{true});
}

TEST_F(GgufImportTest, WindowThatNoLayerHasIsNone) {
  source_.writer.Integer("llama.attention.sliding_window", 8);
  source_.writer.Integers("llama.attention.sliding_window_pattern", {0});
  ImportTiny();
  EXPECT_EQ(pack_->manifest().config.sliding_window, 0);
}

TEST_F(GgufImportTest, StoredHeadIsNotTied) {
  source_.Add("output.weight", kTinyGgufVocabulary, kTinyGgufWidth, kGgufF16);
  ImportTiny();
  EXPECT_FALSE(pack_->manifest().config.tied_head);
  EXPECT_EQ(pack_->Find("head")->dtype, DType::kF16);
}

struct RefusedCase {
  const char* name;
  void (*change)(TinyGguf&);
  const char* message;
};

class GgufRefusalTest : public GgufImportTest, public ::testing::WithParamInterface<RefusedCase> {};

TEST_P(GgufRefusalTest, IsRefusedByName) {
  GetParam().change(source_);
  source_.AddTensors();
  EXPECT_THAT(Import(source_), StatusIs(absl::StatusCode::kInvalidArgument, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufRefusalTest,
    ::testing::Values(
        RefusedCase{"DynamicScaling",
                    [](TinyGguf& gguf) { gguf.writer.Text("llama.rope.scaling.type", "dynamic"); },
                    "is dynamic; none, linear, yarn and longrope are supported"},
        RefusedCase{"YarnWithoutFactor",
                    [](TinyGguf& gguf) { gguf.writer.Text("llama.rope.scaling.type", "yarn"); },
                    "llama.rope.scaling.factor is missing"},
        RefusedCase{"YarnWithAFactorOfItsOwn",
                    [](TinyGguf& gguf) {
                      gguf.writer.Text("llama.rope.scaling.type", "yarn");
                      gguf.writer.Number("llama.rope.scaling.factor", 4.0F);
                      gguf.writer.Integer("llama.rope.scaling.original_context_length", 32);
                      gguf.writer.Number("llama.rope.scaling.yarn_attn_factor", 1.5F);
                    },
                    "yarn_attn_factor is not 1"},
        RefusedCase{"LongRopeWithoutFactors",
                    [](TinyGguf& gguf) { gguf.writer.Text("llama.rope.scaling.type", "longrope"); },
                    "rope_factors_short.weight is missing"},
        RefusedCase{"ScoreScaleZero",
                    [](TinyGguf& gguf) { gguf.writer.Number("llama.attention.scale", 0.0F); },
                    "attention.scale is not above 0"},
        RefusedCase{
            "NegativeCap",
            [](TinyGguf& gguf) { gguf.writer.Number("llama.final_logit_softcapping", -30.0F); },
            "final_logit_softcapping"},
        RefusedCase{"WindowOfOtherLayers",
                    [](TinyGguf& gguf) {
                      gguf.writer.Integer("llama.attention.sliding_window", 8);
                      gguf.writer.Integers("llama.attention.sliding_window_pattern", {1, 0});
                    },
                    "lists 2 layers of 1"},
        RefusedCase{"ExpertsWithoutTheirNumberForAToken",
                    [](TinyGguf& gguf) { gguf.writer.Integer("llama.expert_count", 8); },
                    "llama.expert_used_count is missing"},
        RefusedCase{"ExpertsWithoutRouter",
                    [](TinyGguf& gguf) {
                      gguf.writer.Integer("llama.expert_count", 8);
                      gguf.writer.Integer("llama.expert_used_count", 2);
                    },
                    "names 0 layers with experts"},
        RefusedCase{"HugeNumberOfExperts",
                    [](TinyGguf& gguf) { gguf.writer.Integer("llama.expert_count", 4097); },
                    "llama.expert_count is not an integer from 0 to 4096"},
        RefusedCase{"PartialRotation",
                    [](TinyGguf& gguf) { gguf.writer.Integer("llama.rope.dimension_count", 16); },
                    "not the head width"},
        RefusedCase{"DifferentValueWidth",
                    [](TinyGguf& gguf) { gguf.writer.Integer("llama.attention.value_length", 16); },
                    "value_length"},
        RefusedCase{"LayersOfDifferentShape",
                    [](TinyGguf& gguf) {
                      gguf.writer.Integers("llama.attention.head_count_kv", {2, 1});
                    },
                    "is an array"},
        RefusedCase{"EndIdBeyondTheVocabulary",
                    [](TinyGguf& gguf) { gguf.writer.Integer("tokenizer.ggml.eos_token_id", 70); },
                    "eos_token_id is not an integer from 0 to 69"},
        RefusedCase{"NegativeDivisors",
                    [](TinyGguf& gguf) {
                      gguf.writer.Tensor("rope_freqs.weight", {16}, kGgufF32,
                                         std::string(64, '\xc0'));
                    },
                    "not positive"},
        RefusedCase{"DivisorsOfAnotherLength",
                    [](TinyGguf& gguf) { gguf.Add("rope_freqs.weight", 1, 8, kGgufF32); },
                    "rope_freqs.weight is not a vector of 16"},
        RefusedCase{"TensorWithoutUse",
                    [](TinyGguf& gguf) { gguf.Add("blk.0.attn_q_norm.weight", 1, 32, kGgufF32); },
                    "blk.0.attn_q_norm.weight has no use"},
        RefusedCase{
            "UnsupportedBlockType",
            [](TinyGguf& gguf) { gguf.writer.Tensor("blk.9.x", {256}, 23, std::string(136, 'x')); },
            "blk.9.x has the type IQ4_XS; supported: F32"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace nightshift
