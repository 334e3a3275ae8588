// The weights of a model as the forward pass reads them: views, owned elsewhere (engine/memory).
// A weight that a family does not have is empty: no shards, or null.
#pragma once

#include <vector>

#include "kernels/tensor_view.h"

namespace nightshift {

// A matrix [N, K] with an optional bias [N].
struct MatMulWeights {
  WeightView matrix;
  const float* bias = nullptr;

  bool exists() const { return !matrix.shards.empty(); }
};

// A norm's vectors [E]; bias for LayerNorm only.
struct NormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;

  bool exists() const { return weight != nullptr; }
};

// One expert of a layer.
struct ExpertWeights {
  MatMulWeights gate;
  MatMulWeights up;
  MatMulWeights down;
};

// Names as in tensor_names.h. A layer has gate, up and down, or a router and experts.
struct LayerWeights {
  NormWeights attention_norm;
  MatMulWeights q;
  MatMulWeights k;
  MatMulWeights v;
  const float* q_norm = nullptr;  // [D] or [H*D]
  const float* k_norm = nullptr;  // [D] or [G*D]
  MatMulWeights o;
  NormWeights attention_branch_norm;
  NormWeights ffn_norm;
  MatMulWeights gate;
  MatMulWeights up;
  MatMulWeights down;
  NormWeights ffn_branch_norm;
  MatMulWeights router;
  std::vector<ExpertWeights> experts;
};

struct ModelWeights {
  MatMulWeights embed;
  MatMulWeights positions;
  MatMulWeights project_in;
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  MatMulWeights project_out;
  MatMulWeights head;  // the embedding when tied
};

}  // namespace nightshift
