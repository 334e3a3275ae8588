// Canonical names of a model's tensors in a pack. One name, one meaning, for every family.
#pragma once

#include <cstdint>
#include <string>

namespace nightshift {

// Model level: "embed" [V, W] token table, "positions" [P, E] learned positions, "project_in"
// [E, W], "project_out" [W, E], "final_norm.weight", "final_norm.bias" [E], "head" [V, W].
// A tied head is not stored: the forward uses "embed".
//
// Layer level, "layers.I.NAME": "attention_norm.weight|bias", "q|k|v|o.weight" and ".bias",
// "q_norm.weight", "k_norm.weight", "attention_branch_norm.weight|bias", "ffn_norm.weight|bias",
// "gate.weight|bias" [F, E] (gated families), "up.weight|bias" [F, E], "down.weight|bias" [E, F],
// "ffn_branch_norm.weight|bias". Biases of matmuls are there only if the source has them.
//
// In place of gate, up and down a layer with experts has "router.weight" [X, E] and for each expert
// J "experts.J.gate.weight", "experts.J.up.weight" [F, E], "experts.J.down.weight" [E, F], one
// expert behind the other: an expert is one piece of the pack.
//
// Norm weights are what a row is multiplied by: where a source stores that less 1, 1 is added.
inline std::string LayerTensor(int64_t layer, const std::string& name) {
  return "layers." + std::to_string(layer) + "." + name;
}
// A table of which rows are gathered.
inline bool IsTable(const std::string& name) {
  return name == "embed" || name == "positions";
}
inline std::string ExpertTensor(int64_t layer, int64_t expert, const std::string& name) {
  return LayerTensor(layer, "experts." + std::to_string(expert) + "." + name);
}

}  // namespace nightshift
