// Shapes of models by name, without weights: what `nightshift import --random` fills with random
// numbers, and whatever else plans for a model that is not on the disk.
//
// Sources: config.json of each model as its makers published it on the Hugging Face hub; for OPT
// also table 1 of Zhang et al. 2022. "1b" and "7b" are the shapes of tests/bench, "tiny" that of
// tests; nobody published them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/model/config.h"
#include "engine/model/model_tensors.h"

namespace nightshift {

// Which matmuls of a layer have a bias.
enum class LayerBiases : uint8_t { kNone, kQkv, kAll };

struct KnownShape {
  std::string name;
  ModelConfig config;  // valid
  LayerBiases biases = LayerBiases::kNone;
};

// In the order of the table.
std::vector<std::string> KnownShapeNames();

// By name, without regard to case. Errors: INVALID_ARGUMENT listing the names.
absl::StatusOr<KnownShape> FindKnownShape(absl::string_view name);

// The tensors that the model has, in the order in which a sweep reads them; all are required.
std::vector<TensorSpec> TensorsOf(const KnownShape& shape);

// Numbers in those tensors; a tied head counts once.
int64_t ParametersOf(const KnownShape& shape);

}  // namespace nightshift
