#include "engine/model/pack_import.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/convert.h"
#include "tests/support/golden.h"
#include "tests/support/load_shard.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr char kTiny[] = TEST_DATA_DIR "/tiny/";

// A checkpoint's tensors by name, read without the code under test.
struct StoredTensor {
  std::vector<int64_t> shape;
  std::string type;
  std::string bytes;

  uint16_t half(size_t index) const {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * index, sizeof(bits));
    return bits;
  }
  float value(size_t index) const {
    return type == "F16" ? F16ToF32(half(index)) : BF16ToF32(half(index));
  }
};

std::map<std::string, StoredTensor> ReadCheckpoint(const std::string& folder) {
  std::map<std::string, StoredTensor> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".safetensors") || name == "golden.safetensors") {
      continue;
    }
    const std::string bytes = ReadWholeFile(entry.path());
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    const Json header = Json::parse(bytes.substr(8, header_bytes));
    for (const auto& [tensor, fields] : header.items()) {
      if (tensor != "__metadata__") {
        const size_t begin = fields["data_offsets"][0];
        const size_t end = fields["data_offsets"][1];
        tensors[tensor] = {fields["shape"], fields["dtype"],
                           bytes.substr(8 + header_bytes + begin, end - begin)};
      }
    }
  }
  return tensors;
}

// Hugging Face's name of a canonical tensor, from the lists in tensor_names.h.
std::string SourceNameOf(const std::string& canonical, bool opt) {
  static const std::map<std::string, std::string> kLlama = {
      {"embed", "model.embed_tokens.weight"},
      {"final_norm.weight", "model.norm.weight"},
      {"head", "lm_head.weight"},
      {"attention_norm.weight", "input_layernorm.weight"},
      {"q.weight", "self_attn.q_proj.weight"},
      {"k.weight", "self_attn.k_proj.weight"},
      {"v.weight", "self_attn.v_proj.weight"},
      {"o.weight", "self_attn.o_proj.weight"},
      {"ffn_norm.weight", "post_attention_layernorm.weight"},
      {"gate.weight", "mlp.gate_proj.weight"},
      {"up.weight", "mlp.up_proj.weight"},
      {"down.weight", "mlp.down_proj.weight"}};
  static const std::map<std::string, std::string> kOpt = {
      {"embed", "model.decoder.embed_tokens.weight"},
      {"positions", "model.decoder.embed_positions.weight"},
      {"project_in", "model.decoder.project_in.weight"},
      {"project_out", "model.decoder.project_out.weight"},
      {"final_norm.weight", "model.decoder.final_layer_norm.weight"},
      {"final_norm.bias", "model.decoder.final_layer_norm.bias"},
      {"attention_norm.weight", "self_attn_layer_norm.weight"},
      {"attention_norm.bias", "self_attn_layer_norm.bias"},
      {"q.weight", "self_attn.q_proj.weight"},
      {"q.bias", "self_attn.q_proj.bias"},
      {"k.weight", "self_attn.k_proj.weight"},
      {"k.bias", "self_attn.k_proj.bias"},
      {"v.weight", "self_attn.v_proj.weight"},
      {"v.bias", "self_attn.v_proj.bias"},
      {"o.weight", "self_attn.out_proj.weight"},
      {"o.bias", "self_attn.out_proj.bias"},
      {"ffn_norm.weight", "final_layer_norm.weight"},
      {"ffn_norm.bias", "final_layer_norm.bias"},
      {"up.weight", "fc1.weight"},
      {"up.bias", "fc1.bias"},
      {"down.weight", "fc2.weight"},
      {"down.bias", "fc2.bias"}};
  const std::map<std::string, std::string>& names = opt ? kOpt : kLlama;
  if (!canonical.starts_with("layers.")) {
    return names.at(canonical);
  }
  const size_t dot = canonical.find('.', 7);
  return (opt ? "model.decoder." : "model.") + canonical.substr(0, dot + 1) +
         names.at(canonical.substr(dot + 1));
}

class PackImportTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(kTiny + model()));
    ASSERT_OK(ImportPack(checkpoint, {.output = pack_path()}));
    ASSERT_OK_AND_ASSIGN(pack_, Pack::Open(pack_path()));
    stored_ = ReadCheckpoint(kTiny + model());
  }
  std::string model() const { return GetParam(); }
  bool opt() const { return model().starts_with("opt"); }
  std::string pack_path() const { return folder_.path() + "/pack"; }

  // The loaded bytes of a whole tensor, shard after shard.
  std::vector<std::byte> Load(const TensorEntry& tensor, ComputeType compute_type) {
    std::vector<std::byte> all;
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      std::vector<std::byte> shard(static_cast<size_t>(LoadedShardBytes(tensor, i, compute_type)));
      EXPECT_OK(LoadShard(*pack_, tensor, i, compute_type, shard));
      all.insert(all.end(), shard.begin(), shard.end());
    }
    return all;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Pack> pack_;
  std::map<std::string, StoredTensor> stored_;
};

// Index of (n, k) as pack_format.md states it.
size_t ElementIndex(size_t n, size_t k, size_t inputs) {
  const size_t padded = (inputs + 31) / 32 * 32;
  return n / 64 * 64 * padded + k / 2 * 128 + n % 64 * 2 + k % 2;
}

TEST_P(PackImportTest, EveryTensorOfTheSourceIsInThePackOnce) {
  EXPECT_EQ(pack_->manifest().tensors.size(), stored_.size());
  for (const TensorEntry& tensor : pack_->manifest().tensors) {
    EXPECT_TRUE(stored_.contains(SourceNameOf(tensor.name, opt()))) << tensor.name;
  }
}

TEST_P(PackImportTest, KeepsEveryBitOfEveryMatrixInF32Mode) {
  for (const TensorEntry& tensor : pack_->manifest().tensors) {
    if (tensor.layout == TensorLayout::kVector) {
      continue;
    }
    const StoredTensor& source = stored_.at(SourceNameOf(tensor.name, opt()));
    ASSERT_EQ(source.shape, (std::vector<int64_t>{tensor.outputs, tensor.inputs}));
    const std::vector<std::byte> loaded = Load(tensor, ComputeType::kF32);
    const size_t inputs = static_cast<size_t>(tensor.inputs);
    int64_t differing = 0;
    for (size_t n = 0; n < static_cast<size_t>(tensor.outputs); ++n) {
      for (size_t k = 0; k < inputs; ++k) {
        uint16_t bits = 0;
        std::memcpy(&bits, loaded.data() + 2 * ElementIndex(n, k, inputs), sizeof(bits));
        differing += bits != source.half(n * inputs + k) ? 1 : 0;
      }
    }
    EXPECT_EQ(differing, 0) << tensor.name;
  }
}

TEST_P(PackImportTest, RoundsEveryMatrixToNearestEvenInBf16Mode) {
  for (const TensorEntry& tensor : pack_->manifest().tensors) {
    if (tensor.layout == TensorLayout::kVector) {
      continue;
    }
    const StoredTensor& source = stored_.at(SourceNameOf(tensor.name, opt()));
    const std::vector<std::byte> loaded = Load(tensor, ComputeType::kBF16);
    const size_t inputs = static_cast<size_t>(tensor.inputs);
    int64_t differing = 0;
    for (size_t n = 0; n < static_cast<size_t>(tensor.outputs); ++n) {
      for (size_t k = 0; k < inputs; ++k) {
        uint16_t bits = 0;
        std::memcpy(&bits, loaded.data() + 2 * ElementIndex(n, k, inputs), sizeof(bits));
        differing += bits != F32ToBF16(source.value(n * inputs + k)) ? 1 : 0;
      }
    }
    EXPECT_EQ(differing, 0) << tensor.name;
  }
}

TEST_P(PackImportTest, KeepsEveryVectorExactlyAsF32) {
  for (const TensorEntry& tensor : pack_->manifest().tensors) {
    if (tensor.layout != TensorLayout::kVector) {
      continue;
    }
    const StoredTensor& source = stored_.at(SourceNameOf(tensor.name, opt()));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> values, LoadVector(*pack_, tensor));
    ASSERT_EQ(values.size(), static_cast<size_t>(source.shape.at(0))) << tensor.name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], source.value(i)) << tensor.name << " " << i;
    }
  }
}

TEST_P(PackImportTest, PaddingIsZero) {
  const TensorEntry& embedding = *pack_->Find("embed");
  const std::vector<std::byte> loaded = Load(embedding, ComputeType::kF32);
  const size_t inputs = static_cast<size_t>(embedding.inputs);
  const size_t padded_inputs = (inputs + 31) / 32 * 32;
  const size_t padded_outputs = (static_cast<size_t>(embedding.outputs) + 63) / 64 * 64;
  ASSERT_EQ(loaded.size(), 2 * padded_inputs * padded_outputs);
  for (size_t n = 0; n < padded_outputs; ++n) {
    for (size_t k = 0; k < padded_inputs; ++k) {
      if (n >= static_cast<size_t>(embedding.outputs) || k >= inputs) {
        const size_t byte = 2 * ElementIndex(n, k, inputs);
        ASSERT_EQ(loaded[byte], std::byte{0});
        ASSERT_EQ(loaded[byte + 1], std::byte{0});
      }
    }
  }
}

TEST_P(PackImportTest, HeadIsTiedExactlyWhenNoneIsStored) {
  EXPECT_EQ(pack_->manifest().config.tied_head, !stored_.contains("lm_head.weight"));
  EXPECT_EQ(pack_->Find("head") == nullptr, pack_->manifest().config.tied_head);
}

TEST_P(PackImportTest, LeavesNothingElseBehind) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    names.push_back(std::filesystem::relative(entry.path(), folder_.path()));
  }
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("pack", "pack/manifest.json", "pack/weights.extent"));
}

TEST_P(PackImportTest, TheSameSourceGivesTheSameDigest) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(kTiny + model()));
  ASSERT_OK_AND_ASSIGN(const ImportedPack again,
                       ImportPack(checkpoint, {.output = folder_.path() + "/again"}));
  EXPECT_EQ(again.manifest.digest, pack_->manifest().digest);
}

TEST_P(PackImportTest, QuantisesEveryMatrixToTheTypeAskedFor) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(kTiny + model()));
  const std::string path = folder_.path() + "/int4";
  ASSERT_OK(ImportPack(checkpoint, {.output = path, .types = {.matrices = DType::kU4G64}}));
  ASSERT_OK_AND_ASSIGN(pack_, Pack::Open(path));
  for (const TensorEntry& tensor : pack_->manifest().tensors) {
    if (tensor.layout == TensorLayout::kVector) {
      EXPECT_EQ(tensor.dtype, DType::kF32);
      continue;
    }
    const bool is_table =
        tensor.name == "embed" || tensor.name == "positions" || tensor.name == "head";
    ASSERT_EQ(tensor.dtype, is_table ? DType::kI8G64 : DType::kU4G64) << tensor.name;
    const StoredTensor& source = stored_.at(SourceNameOf(tensor.name, opt()));
    EXPECT_EQ(tensor.source_type, source.type);
    ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes,
                         LoadExpanded(*pack_, tensor, ComputeType::kF32));
    const size_t inputs = static_cast<size_t>(tensor.inputs);
    float worst = 0.0F;  // error beside its bound
    for (size_t n = 0; n < static_cast<size_t>(tensor.outputs); n += 3) {
      for (size_t first = 0; first < inputs; first += 64) {
        const size_t end = std::min(first + 64, inputs);
        float low = source.value(n * inputs + first);
        float high = low;
        for (size_t k = first; k < end; ++k) {
          low = std::min(low, source.value(n * inputs + k));
          high = std::max(high, source.value(n * inputs + k));
        }
        // Half a step and a little of it for its own rounding and the minimum's.
        const float step = is_table ? std::max(high, -low) / 127 : (high - low) / 15;
        const float bound = 0.57F * step + 0.0005F * std::max(high, -low);
        for (size_t k = first; k < end; ++k) {
          float value = 0.0F;
          std::memcpy(&value, bytes.data() + 4 * ElementIndex(n, k, inputs), sizeof(value));
          worst = std::max(worst, std::abs(value - source.value(n * inputs + k)) / bound);
        }
      }
    }
    EXPECT_LE(worst, 1.0F) << tensor.name;
    EXPECT_GT(worst, 0.5F) << tensor.name;
  }
}

TEST_P(PackImportTest, TablesAndHeadMayHaveTypesOfTheirOwn) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(kTiny + model()));
  const bool has_head = stored_.contains("lm_head.weight");
  PackImportOptions options{.output = folder_.path() + "/mixed",
                            .types = {.matrices = DType::kI8G64, .embeddings = DType::kBF16}};
  if (has_head) {
    options.types.head = DType::kU4G64;
  }
  ASSERT_OK(ImportPack(checkpoint, options));
  ASSERT_OK_AND_ASSIGN(pack_, Pack::Open(options.output));
  EXPECT_EQ(pack_->Find("embed")->dtype, DType::kBF16);
  EXPECT_EQ(pack_->Find("layers.0.q.weight")->dtype, DType::kI8G64);
  if (has_head) {
    EXPECT_EQ(pack_->Find("head")->dtype, DType::kU4G64);
  }
  options.output += "-2";
  options.types.head = DType::kU4G64;
  const auto again = ImportPack(checkpoint, options);
  EXPECT_EQ(again.ok(), has_head) << again.status();
}

TEST_P(PackImportTest, RefusesAnOutputThatExists) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(kTiny + model()));
  EXPECT_THAT(ImportPack(checkpoint, {.output = pack_path()}),
              StatusIs(absl::StatusCode::kAlreadyExists, "remove it or choose another name"));
  EXPECT_OK(Pack::Open(pack_path()));
}

INSTANTIATE_TEST_SUITE_P(TinyModels, PackImportTest,
                         ::testing::Values("opt", "opt_postnorm", "llama", "llama3_rope",
                                           "llama_linear_rope", "llama_tied"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace nightshift
