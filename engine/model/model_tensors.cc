#include "engine/model/model_tensors.h"

#include <utility>

#include "engine/model/tensor_names.h"

namespace nightshift {
namespace {

// Appends tensors under a name prefix.
class SpecList {
 public:
  void Matrix(const std::string& name, int64_t outputs, int64_t inputs) {
    specs_.push_back({name, TensorLayout::kMatMul, outputs, inputs, true});
  }
  void Vector(const std::string& name, int64_t length, bool required) {
    specs_.push_back({name, TensorLayout::kVector, length, 1, required});
  }
  // A weight and the bias that it may have.
  void Linear(const std::string& name, int64_t outputs, int64_t inputs) {
    Matrix(name + ".weight", outputs, inputs);
    Vector(name + ".bias", outputs, false);
  }
  void Norm(const std::string& name, const ModelConfig& config) {
    Vector(name + ".weight", config.model_width, true);
    if (config.norm == NormKind::kLayer) {
      Vector(name + ".bias", config.model_width, true);
    }
  }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

void AppendExperts(const ExpertConfig& experts, int64_t layer, int64_t width, SpecList& specs) {
  specs.Matrix(LayerTensor(layer, "router.weight"), experts.count, width);
  for (int64_t expert = 0; expert < experts.count; ++expert) {
    specs.Matrix(ExpertTensor(layer, expert, "gate.weight"), experts.ffn_width, width);
    specs.Matrix(ExpertTensor(layer, expert, "up.weight"), experts.ffn_width, width);
    specs.Matrix(ExpertTensor(layer, expert, "down.weight"), width, experts.ffn_width);
  }
}

void AppendLayer(const ModelConfig& config, int64_t layer, SpecList& specs) {
  const int64_t width = config.model_width;
  const int64_t query_width = config.num_heads * config.head_width;
  const int64_t kv_width = config.num_kv_heads * config.head_width;
  const NormPlaces norms = NormPlacesOf(config);
  if (norms.attention) {
    specs.Norm(LayerTensor(layer, "attention_norm"), config);
  }
  specs.Linear(LayerTensor(layer, "q"), query_width, width);
  specs.Linear(LayerTensor(layer, "k"), kv_width, width);
  specs.Linear(LayerTensor(layer, "v"), kv_width, width);
  if (config.qk_norm != QkNorm::kNone) {
    const bool head = config.qk_norm == QkNorm::kHead;
    specs.Vector(LayerTensor(layer, "q_norm.weight"), head ? config.head_width : query_width, true);
    specs.Vector(LayerTensor(layer, "k_norm.weight"), head ? config.head_width : kv_width, true);
  }
  specs.Linear(LayerTensor(layer, "o"), width, query_width);
  if (norms.branches) {
    specs.Norm(LayerTensor(layer, "attention_branch_norm"), config);
  }
  if (norms.ffn) {
    specs.Norm(LayerTensor(layer, "ffn_norm"), config);
  }
  if (HasExperts(config, layer)) {
    AppendExperts(*config.experts, layer, width, specs);
  } else {
    if (config.gated_ffn) {
      specs.Linear(LayerTensor(layer, "gate"), config.ffn_width, width);
    }
    specs.Linear(LayerTensor(layer, "up"), config.ffn_width, width);
    specs.Linear(LayerTensor(layer, "down"), width, config.ffn_width);
  }
  if (norms.branches) {
    specs.Norm(LayerTensor(layer, "ffn_branch_norm"), config);
  }
}

}  // namespace

NormPlaces NormPlacesOf(const ModelConfig& config) {
  const bool after_residual = !config.pre_norm && !config.branch_norm;
  const bool attention = config.pre_norm || after_residual;
  return {.attention = attention,
          .ffn = attention && !config.shared_norm,
          .branches = config.branch_norm};
}

std::vector<TensorSpec> ModelTensors(const ModelConfig& config) {
  const bool projected = config.embedding_width != config.model_width;
  SpecList specs;
  specs.Matrix("embed", config.vocabulary, config.embedding_width);
  if (config.position == PositionKind::kLearned) {
    specs.Matrix("positions", config.context_tokens + config.learned_position_offset,
                 config.model_width);
  }
  if (projected) {
    specs.Matrix("project_in", config.model_width, config.embedding_width);
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    AppendLayer(config, layer, specs);
  }
  if (config.final_norm) {
    specs.Norm("final_norm", config);
  }
  if (projected) {
    specs.Matrix("project_out", config.embedding_width, config.model_width);
  }
  if (!config.tied_head) {
    specs.Matrix("head", config.vocabulary, config.embedding_width);
  }
  return specs.Take();
}

}  // namespace nightshift
