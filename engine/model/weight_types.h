// WeightTypes: which types an import gives a model's matrices, and whether it may.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/model/tensor_map.h"
#include "kernels/dtype.h"

namespace nightshift {

// What is not asked for stays as the source has it. Vectors (norms, biases) are F32 in every pack,
// and routers, which are small and choose experts by small differences, stay.
struct WeightTypes {
  std::optional<DType> matrices = {};  // of layers, and projections of the embedding
  // Tables of tokens and positions; a tied head is the embedding. Nothing: I8G64 where matrices
  // have 4 bits, since a table is small beside layers and errs in every token; else as matrices.
  std::optional<DType> embeddings = {};
  std::optional<DType> head = {};  // nothing: as embeddings
  // Quantised weights of the source may be quantised again, or expanded.
  bool requantises = false;
};

// "int4" and "int8" (the asymmetric U4G64 and the symmetric I8G64), "f32", "bf16", "u4g64",
// "i4g64", "u8g64", "i8g64". Errors: INVALID_ARGUMENT listing them.
absl::StatusOr<DType> ParseWeightType(absl::string_view name);

// Decides TensorOrigin::stored of every matrix. A quantised tensor that was asked for in as many
// bits as it has is kept as it is, unless types.requantises.
// Errors: INVALID_ARGUMENT naming a quantised tensor that was asked for in other bits, or a head
// that the model does not have.
absl::Status ChooseTypes(const WeightTypes& types, TensorMap& map);

}  // namespace nightshift
