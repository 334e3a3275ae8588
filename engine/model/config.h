// ModelConfig: everything the forward pass needs to know about a model, as data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/ops.h"

namespace nightshift {

enum class NormKind : uint8_t { kRms, kLayer };
enum class PositionKind : uint8_t { kRope, kLearned };
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kDivisors };

struct RopeConfig {
  double theta = 10000.0;
  int64_t rotary_width = 0;  // rotated dimensions of a head, even
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;         // llama3
  double high_freq_factor = 4.0;        // llama3
  int64_t original_context_tokens = 0;  // llama3
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
  int64_t ffn_width = 0;        // F
  int64_t context_tokens = 0;
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 1e-5F;
  bool pre_norm = true;  // norm before each branch, else after the residual addition
  bool final_norm = true;
  Activation activation = Activation::kSilu;
  bool gated_ffn = true;
  PositionKind position = PositionKind::kRope;
  int64_t learned_position_offset = 0;  // OPT: 2
  RopeConfig rope;
  bool tied_head = false;
  // Token ids; -1 when there is none. A model may end a text with several ids.
  int32_t bos_token = -1;
  std::vector<int32_t> eos_tokens;
};

// OK when every number lies in its bounds (so that no product of them overflows) and they fit
// together; else INVALID_ARGUMENT naming the field.
absl::Status ValidateModelConfig(const ModelConfig& config);

// Serialises for the manifest. Parse refuses unknown families, missing or out-of-range fields by
// name (INVALID_ARGUMENT) and never trusts the text; what it returns is valid.
std::string ModelConfigToJson(const ModelConfig& config);
absl::StatusOr<ModelConfig> ModelConfigFromJson(const std::string& text);

}  // namespace nightshift
