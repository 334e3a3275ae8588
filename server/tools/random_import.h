// `nightshift import --random SHAPE --output PACK`: a pack of random weights in a known shape.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "kernels/dtype.h"
#include "server/tools/import.h"

namespace nightshift {

struct RandomImportOptions {
  std::string shape;             // a name of engine/model/known_shapes.h
  std::string output;            // the pack's folder; must not exist
  std::string name = {};         // what the pack calls the model; empty: the shape's name
  DType weights = DType::kBF16;  // of matrices; or kF32, or integer groups
  uint64_t seed = 0;
  // A Hugging Face folder or a pack whose tokenizer and chat template the pack gets, so that it
  // serves texts; empty: token ids only.
  std::string tokenizer = {};
  ImportProgress progress = {};
};

// Errors: INVALID_ARGUMENT (no such shape, with the list; a tokenizer or template that this version
// cannot run), NOT_FOUND (no such folder), ALREADY_EXISTS (output), RESOURCE_EXHAUSTED (disk, with
// numbers).
absl::StatusOr<ImportSummary> ImportRandom(const RandomImportOptions& options);

}  // namespace nightshift
