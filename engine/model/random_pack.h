// Writes packs of random weights: a model of any shape for benchmarks and plans, straight to disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "engine/model/known_shapes.h"
#include "engine/model/pack.h"
#include "engine/model/weight_import.h"
#include "kernels/dtype.h"

namespace nightshift {

struct RandomPackOptions {
  std::string output;
  KnownShape shape;
  // Of matrices: kBF16, kF32 or integer groups; vectors are F32 as in every pack.
  DType weights = DType::kBF16;
  uint64_t seed = 0;
  std::string model_name = {};                     // empty: the shape's
  std::optional<std::string> tokenizer_json = {};  // as TokenizerSpecToJson writes it
  std::optional<std::string> chat_template = {};
  ImportProgress progress = {};  // may be empty
};

// Same shape, type, seed and texts: same bytes, on every machine.
//
// Elements of a matrix [N, K] have a random sign and fraction and one exponent, such that a row of
// K of them has a norm of about 1: activations keep their scale and logits stay finite, however
// deep the model. Integer groups have random codes, and scales and minimums that give such rows.
// Norms are 1, biases small.
//
// Checks free disk, writes aside, syncs and renames, as ImportPack. Memory: one shard.
// Errors: ALREADY_EXISTS (output), RESOURCE_EXHAUSTED (no room, with numbers), FAILED_PRECONDITION
// (no access).
absl::StatusOr<PackManifest> WriteRandomPack(const RandomPackOptions& options);

}  // namespace nightshift
