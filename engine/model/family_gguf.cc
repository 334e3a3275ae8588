#include "engine/model/family_gguf.h"

#include <cmath>

namespace nightshift {

// GGUF has no key for the score scale of Gemma. It is 1 / sqrt(head width) but in the largest
// models, Gemma 2 27B (46 layers) and Gemma 3 27B (62), where it is 1 / sqrt(width / heads).
void CompleteGemmaFromGguf(GgufKeys& keys, ModelConfig& config) {
  const bool largest = config.num_layers == 46 || config.num_layers == 62;
  if (largest && !keys.Has("attention.scale")) {
    config.attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.model_width) /
                                           static_cast<double>(config.num_heads)));
  }
}

void CompleteGemma3FromGguf(GgufKeys& keys, ModelConfig& config) {
  CompleteGemmaFromGguf(keys, config);
  RopeConfig local;
  local.rotary_width = config.rope.rotary_width;
  local.theta = keys.Positive("rope.freq_base_swa", 10000.0);
  if (config.sliding_window > 0) {
    config.sliding_rope = local;
  }
}

void CompleteGraniteFromGguf(GgufKeys& keys, ModelConfig& config) {
  config.embedding_multiplier = static_cast<float>(keys.Positive("embedding_scale", 1.0));
  config.residual_multiplier = static_cast<float>(keys.Positive("residual_scale", 1.0));
  config.logit_multiplier = 1.0F / static_cast<float>(keys.Positive("logit_scale", 1.0));
}

// Parallel branches read the attention's norm, and there is no other.
void CompleteStableLmFromGguf(GgufKeys& keys, ModelConfig& config) {
  config.parallel_branches = config.shared_norm = !keys.HasTensor("blk.0.ffn_norm.weight");
}

void CompleteGptNeoXFromGguf(GgufKeys& keys, ModelConfig& config) {
  config.parallel_branches = keys.Bool("use_parallel_residual", true);
}

}  // namespace nightshift
