#include "engine/model/family_shapes.h"

#include <cmath>

namespace nightshift {

void SetLlamaShape(ModelConfig& config) {
  config.norm = NormKind::kRms;
  config.norm_epsilon = 1e-6F;
  config.activation = Activation::kSilu;
  config.gated_ffn = true;
  config.position = PositionKind::kRope;
  config.embedding_width = config.model_width;
  config.rope.rotary_width = config.head_width;
}

void SetQwen3Shape(ModelConfig& config) {
  SetLlamaShape(config);
  config.qk_norm = QkNorm::kHead;
}

void SetGemma2Shape(ModelConfig& config) {
  SetLlamaShape(config);
  config.activation = Activation::kGeluTanh;
  config.branch_norm = true;
  config.embedding_multiplier =
      static_cast<float>(std::sqrt(static_cast<double>(config.model_width)));
}

void SetGemma3Shape(ModelConfig& config) {
  SetGemma2Shape(config);
  config.qk_norm = QkNorm::kHead;
}

void SetOlmo2Shape(ModelConfig& config) {
  SetLlamaShape(config);
  config.pre_norm = false;
  config.branch_norm = true;
  config.qk_norm = QkNorm::kRow;
}

void SetStableLmShape(ModelConfig& config) {
  SetLlamaShape(config);
  config.norm = NormKind::kLayer;
  config.norm_epsilon = 1e-5F;
}

void SetGptNeoXShape(ModelConfig& config) {
  SetLlamaShape(config);
  config.norm = NormKind::kLayer;
  config.norm_epsilon = 1e-5F;
  config.activation = Activation::kGeluErf;
  config.gated_ffn = false;
  config.parallel_branches = true;
}

void SetFalconShape(ModelConfig& config) {
  SetGptNeoXShape(config);
  config.shared_norm = true;
}

void SetOptShape(ModelConfig& config) {
  config.norm = NormKind::kLayer;
  config.norm_epsilon = 1e-5F;  // Not in the file: torch's default.
  config.activation = Activation::kRelu;
  config.gated_ffn = false;
  config.position = PositionKind::kLearned;
  config.learned_position_offset = 2;
}

}  // namespace nightshift
