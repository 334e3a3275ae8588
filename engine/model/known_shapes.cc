#include "engine/model/known_shapes.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/model/families.h"

namespace nightshift {
namespace {

// OPT: vocabulary 50272, context 2048, feed-forward of four times the width, tied head.
struct OptRow {
  const char* name;
  int64_t layers;
  int64_t width;
  int64_t heads;
  int64_t embedding_width = 0;  // 0: the width, with norms before the branches
};
constexpr OptRow kOptRows[] = {
    {"opt-125m", 12, 768, 12},  {"opt-350m", 24, 1024, 16, 512}, {"opt-1.3b", 24, 2048, 32},
    {"opt-2.7b", 32, 2560, 32}, {"opt-6.7b", 32, 4096, 32},      {"opt-13b", 40, 5120, 40},
    {"opt-30b", 48, 7168, 56},  {"opt-66b", 64, 9216, 72},       {"opt-175b", 96, 12288, 96},
};

// What the models of one publication have in common.
struct Series {
  const char* family;
  const char* architecture;
  int64_t vocabulary;
  int64_t context_tokens;
  double theta;
  float epsilon;
  int32_t bos_token;
  int32_t eos_token;
  LayerBiases biases = LayerBiases::kNone;
};
// Random models end nowhere: no end token.
constexpr Series kBench = {"llama", "LlamaForCausalLM", 49152, 4096, 1e4, 1e-5F, -1, -1};
constexpr Series kTiny = {"llama", "LlamaForCausalLM", 512, 2048, 1e4, 1e-5F, -1, -1};
constexpr Series kLlama2 = {"llama", "LlamaForCausalLM", 32000, 4096, 1e4, 1e-5F, 1, 2};
constexpr Series kLlama3 = {"llama", "LlamaForCausalLM", 128256, 8192, 5e5, 1e-5F, 128000, 128001};
// With the scaling of rotations that its series adds, see MakeConfig.
constexpr Series kLlama31 = {"llama", "LlamaForCausalLM", 128256, 131072, 5e5, 1e-5F, 128000,
                             128001};
constexpr Series kMixtral = {"mixtral", "MixtralForCausalLM", 32000, 32768, 1e6, 1e-5F, 1, 2};
constexpr Series kQwen2 = {"qwen2", "Qwen2ForCausalLM", 151936, 131072, 1e6, 1e-6F, -1,
                           151643,  LayerBiases::kQkv};
constexpr Series kQwen2Large = {"qwen2", "Qwen2ForCausalLM", 152064, 131072, 1e6, 1e-6F, -1,
                                151643,  LayerBiases::kQkv};
constexpr Series kQwen3 = {"qwen3", "Qwen3ForCausalLM", 151936, 40960, 1e6, 1e-6F, -1, 151645};
constexpr Series kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", 151936, 40960, 1e6, 1e-6F, -1,
                              151645};

struct Row {
  const char* name;
  const Series& series;
  int64_t layers;
  int64_t width;
  int64_t heads;
  int64_t kv_heads;
  int64_t ffn_width;
  bool tied_head = false;
  int64_t head_width = 0;  // 0: width / heads
  // Of each layer; 0: dense.
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_ffn_width = 0;
};
constexpr Row kRows[] = {
    {"tiny", kTiny, 4, 128, 4, 2, 512},
    {"1b", kBench, 16, 2048, 32, 8, 8192},
    {"7b", kBench, 32, 4096, 32, 8, 14336},
    {"llama-2-7b", kLlama2, 32, 4096, 32, 32, 11008},
    {"llama-2-13b", kLlama2, 40, 5120, 40, 40, 13824},
    {"llama-2-70b", kLlama2, 80, 8192, 64, 8, 28672},
    {"llama-3-8b", kLlama3, 32, 4096, 32, 8, 14336},
    {"llama-3-70b", kLlama3, 80, 8192, 64, 8, 28672},
    {"llama-3.1-405b", kLlama31, 126, 16384, 128, 8, 53248},
    {"mixtral-8x7b", kMixtral, 32, 4096, 32, 8, 14336, false, 0, 8, 2, 14336},
    {"qwen2-0.5b", kQwen2, 24, 896, 14, 2, 4864, true},
    {"qwen2-1.5b", kQwen2, 28, 1536, 12, 2, 8960, true},
    {"qwen2-7b", kQwen2Large, 28, 3584, 28, 4, 18944},
    {"qwen2-72b", kQwen2Large, 80, 8192, 64, 8, 29568},
    {"qwen2.5-14b", kQwen2Large, 48, 5120, 40, 8, 13824},
    {"qwen2.5-32b", kQwen2Large, 64, 5120, 40, 8, 27648},
    {"qwen3-0.6b", kQwen3, 28, 1024, 16, 8, 3072, true, 128},
    {"qwen3-1.7b", kQwen3, 28, 2048, 16, 8, 6144, true, 128},
    {"qwen3-4b", kQwen3, 36, 2560, 32, 8, 9728, true, 128},
    {"qwen3-8b", kQwen3, 36, 4096, 32, 8, 12288, false, 128},
    {"qwen3-14b", kQwen3, 40, 5120, 40, 8, 17408, false, 128},
    {"qwen3-32b", kQwen3, 64, 5120, 64, 8, 25600, false, 128},
    {"qwen3-30b-a3b", kQwen3Moe, 48, 2048, 32, 4, 6144, false, 128, 128, 8, 768},
};

// Completes a configuration whose sizes are set.
void SetFamily(const char* family, const char* architecture, ModelConfig& config) {
  config.family = family;
  config.architecture = architecture;
  FindFamily(family)->set_shape(config);
}

KnownShape MakeOpt(const OptRow& row) {
  KnownShape shape;
  shape.name = row.name;
  shape.biases = LayerBiases::kAll;
  ModelConfig& config = shape.config;
  config.vocabulary = 50272;
  config.num_layers = row.layers;
  config.model_width = row.width;
  config.embedding_width = row.embedding_width == 0 ? row.width : row.embedding_width;
  config.num_heads = row.heads;
  config.num_kv_heads = row.heads;
  config.head_width = row.width / row.heads;
  config.ffn_width = 4 * row.width;
  config.context_tokens = 2048;
  config.tied_head = true;
  config.bos_token = 2;
  config.eos_tokens = {2};
  SetFamily("opt", "OPTForCausalLM", config);
  config.pre_norm = row.embedding_width == 0;
  config.final_norm = config.pre_norm;
  return shape;
}

KnownShape MakeDecoder(const Row& row) {
  KnownShape shape;
  shape.name = row.name;
  shape.biases = row.series.biases;
  ModelConfig& config = shape.config;
  config.vocabulary = row.series.vocabulary;
  config.num_layers = row.layers;
  config.model_width = row.width;
  config.num_heads = row.heads;
  config.num_kv_heads = row.kv_heads;
  config.head_width = row.head_width == 0 ? row.width / row.heads : row.head_width;
  config.ffn_width = row.ffn_width;
  config.context_tokens = row.series.context_tokens;
  config.tied_head = row.tied_head;
  config.rope.theta = row.series.theta;
  config.bos_token = row.series.bos_token;
  if (row.series.eos_token >= 0) {
    config.eos_tokens = {row.series.eos_token};
  }
  SetFamily(row.series.family, row.series.architecture, config);
  config.norm_epsilon = row.series.epsilon;
  if (&row.series == &kLlama31) {
    config.rope.scaling = RopeScaling::kLlama3;
    config.rope.factor = 8.0;
    config.rope.original_context_tokens = 8192;
  }
  if (row.experts > 0) {
    config.experts = {.count = row.experts,
                      .per_token = row.experts_per_token,
                      .ffn_width = row.expert_ffn_width,
                      .normalise = true,
                      .layers = std::vector<bool>(static_cast<size_t>(row.layers), true)};
  }
  return shape;
}

bool HasTensor(const KnownShape& shape, const TensorSpec& spec) {
  if (spec.required || shape.biases == LayerBiases::kAll) {
    return true;
  }
  return shape.biases == LayerBiases::kQkv &&
         (absl::EndsWith(spec.name, ".q.bias") || absl::EndsWith(spec.name, ".k.bias") ||
          absl::EndsWith(spec.name, ".v.bias"));
}

}  // namespace

std::vector<std::string> KnownShapeNames() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
  }
  for (const OptRow& row : kOptRows) {
    names.emplace_back(row.name);
  }
  return names;
}

absl::StatusOr<KnownShape> FindKnownShape(absl::string_view name) {
  for (const Row& row : kRows) {
    if (absl::EqualsIgnoreCase(row.name, name)) {
      return MakeDecoder(row);
    }
  }
  for (const OptRow& row : kOptRows) {
    if (absl::EqualsIgnoreCase(row.name, name)) {
      return MakeOpt(row);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("no shape is named ", name.substr(0, 64),
                                                 "; there are ",
                                                 absl::StrJoin(KnownShapeNames(), ", ")));
}

std::vector<TensorSpec> TensorsOf(const KnownShape& shape) {
  std::vector<TensorSpec> specs;
  for (TensorSpec& spec : ModelTensors(shape.config)) {
    if (HasTensor(shape, spec)) {
      spec.required = true;
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

int64_t ParametersOf(const KnownShape& shape) {
  int64_t parameters = 0;
  for (const TensorSpec& spec : TensorsOf(shape)) {
    parameters += spec.outputs * spec.inputs;
  }
  return parameters;
}

}  // namespace nightshift
