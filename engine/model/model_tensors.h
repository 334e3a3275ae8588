// Which tensors a model has: names, layouts and shapes, from its configuration alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/config.h"

namespace nightshift {

// How a tensor's elements lie in its shards. Numbers of the pack format.
enum class TensorLayout : uint8_t {
  kMatMul = 1,  // [N/64][K/2][64][2] panels, scales beside their rows
  kVector = 2,  // plain F32 in order
};

struct TensorSpec {
  std::string name;  // canonical: tensor_names.h
  TensorLayout layout = TensorLayout::kMatMul;
  int64_t outputs = 0;   // N; the length of a vector
  int64_t inputs = 1;    // K; 1 for a vector
  bool required = true;  // biases of matmuls may be absent
};

// Which norms a layer has, by their tensors' names.
struct NormPlaces {
  bool attention = false;  // "attention_norm": before the branch, or after its residual addition
  bool ffn = false;        // "ffn_norm", as above
  bool branches = false;   // "attention_branch_norm" and "ffn_branch_norm"
};
NormPlaces NormPlacesOf(const ModelConfig& config);

// All tensors of a valid configuration, in the order in which a sweep reads them. The head is among
// them unless it is tied.
std::vector<TensorSpec> ModelTensors(const ModelConfig& config);

}  // namespace nightshift
