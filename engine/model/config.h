// ModelConfig: everything the forward pass needs to know about a model, as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/expert_config.h"
#include "kernels/ops.h"

namespace nightshift {

// Far above every published model; readers of strangers' files refuse more before they count on it.
inline constexpr int64_t kMaxLayers = 4096;

enum class NormKind : uint8_t { kRms, kLayer };
enum class PositionKind : uint8_t { kRope, kLearned };
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kDivisors };
// RMS norm of queries and keys before they are rotated: of each head by one vector [D], or of the
// whole row by a vector [H*D] or [G*D].
enum class QkNorm : uint8_t { kNone, kHead, kRow };

struct RopeConfig {
  double theta = 10000.0;
  int64_t rotary_width = 0;  // rotated dimensions of a head, even
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;         // llama3
  double high_freq_factor = 4.0;        // llama3
  int64_t original_context_tokens = 0;  // llama3, yarn
  // yarn: pairs that turn more often than beta_fast times over the original context keep their
  // frequency, those below beta_slow are divided by the factor, those between are blended.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;    // yarn: the blend's ends are rounded outwards to whole pairs
  double magnitude = 1.0;  // multiplies cosines and sines (yarn, longrope)
  // kDivisors: one number a pair, each divides the pair's frequency. How GGUF stores llama3.
  std::vector<float> divisors;
};

// Written to the pack's manifest and read from there; the Hugging Face config.json and the GGUF
// metadata are translated to it at import (families.h).
struct ModelConfig {
  std::string family;           // row of the family table: "llama", "opt"
  std::string architecture;     // as the source called it, for people: "LlamaForCausalLM"
  int64_t vocabulary = 0;       // V
  int64_t num_layers = 0;       // L
  int64_t model_width = 0;      // E
  int64_t embedding_width = 0;  // of the token table; differs from E with project_in/out (OPT-350M)
  int64_t num_heads = 0;        // H
  int64_t num_kv_heads = 0;     // G
  int64_t head_width = 0;       // D
  int64_t ffn_width = 0;        // F of layers without experts
  int64_t context_tokens = 0;
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 1e-5F;
  // A branch is attention or the feed-forward. Its norms: before it, behind it (before the residual
  // addition), or both; with neither, one after the residual addition (OPT-350M).
  bool pre_norm = true;
  bool branch_norm = false;
  // Both branches read the layer's input, each through its norm; with shared_norm through one.
  bool parallel_branches = false;
  bool shared_norm = false;
  bool final_norm = true;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool gated_ffn = true;
  std::optional<ExpertConfig> experts;  // of mixtures of experts
  PositionKind position = PositionKind::kRope;
  int64_t learned_position_offset = 0;  // OPT: 2
  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope;  // of layers that slide, where it differs (Gemma 3)
  // Keys that a query of a sliding layer sees, its own among them; 0: no layer slides.
  int64_t sliding_window = 0;
  std::vector<bool> sliding_layers;  // [L] which slide; empty without a window
  float attention_scale = 0.0F;      // multiplies q.k; 0: 1 / sqrt(head_width)
  // Scores and logits x become cap * tanh(x / cap); 0: they stay.
  float attention_softcap = 0.0F;
  float logit_softcap = 0.0F;
  float embedding_multiplier = 1.0F;
  float residual_multiplier = 1.0F;  // of each branch
  float logit_multiplier = 1.0F;
  bool tied_head = false;
  // Token ids; -1 when there is none. A model may end a text with several ids.
  int32_t bos_token = -1;
  std::vector<int32_t> eos_tokens;
};

// True when queries of the layer see the window only.
inline bool IsSliding(const ModelConfig& config, int64_t layer) {
  return config.sliding_window > 0 && config.sliding_layers[static_cast<size_t>(layer)];
}

// True when the layer's feed-forward is a choice among experts.
inline bool HasExperts(const ModelConfig& config, int64_t layer) {
  return config.experts && config.experts->layers[static_cast<size_t>(layer)];
}

// OK when every number lies in its bounds (so that no product of them overflows) and they fit
// together; else INVALID_ARGUMENT naming the field.
absl::Status ValidateModelConfig(const ModelConfig& config);

// Serialises for the manifest. Parse refuses unknown families, missing or out-of-range fields by
// name (INVALID_ARGUMENT) and never trusts the text; what it returns is valid.
std::string ModelConfigToJson(const ModelConfig& config);
absl::StatusOr<ModelConfig> ModelConfigFromJson(const std::string& text);

}  // namespace nightshift
