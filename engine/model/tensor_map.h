// Matches the tensors of a checkpoint with those that the model needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/families.h"
#include "engine/model/model_tensors.h"
#include "engine/model/tensor_source.h"

namespace nightshift {

// Where one tensor of the pack comes from.
struct TensorOrigin {
  TensorSpec spec;
  const SourceTensor* source = nullptr;  // nullptr: filled with `fill`
  DType stored = DType::kF32;            // what the pack keeps it as; vectors as F32
  float fill = 0.0F;
  float added = 0.0F;  // to every value of a vector
  // Above 0: rows of each of this many heads come as pairs (2i, 2i + 1) and leave as (i, i + half).
  int64_t paired_heads = 0;
  // The tensor's rows among those of a matrix that holds others too: runs of `run_rows` rows, from
  // `first_row` on, one every `run_stride` rows. run_rows 0: the source holds this tensor only.
  int64_t first_row = 0;
  int64_t run_rows = 0;
  int64_t run_stride = 0;

  // The source row that becomes row `row`.
  int64_t SourceRow(int64_t row) const;
  // Whether rows [first, first + count) follow one another in the source too.
  bool AreConsecutive(int64_t first, int64_t count) const;
};

struct TensorMap {
  ModelConfig config;                 // complete: tied_head is decided
  std::vector<TensorOrigin> tensors;  // in the order of a sweep; absent biases are left out
  std::vector<std::string> notes;     // what a person may want to know
};

// `tensors` must outlive the result. Matrices are stored as their source has them. A head counts as
// tied when the source says so, or says nothing and stores none. Every tensor of the checkpoint
// must have a use (a model with more than we compute would be wrong in silence); rotary tables,
// which we compute, and the copy of a tied head are passed over. Errors: INVALID_ARGUMENT naming
// the tensor that is missing, has another shape or no use.
absl::StatusOr<TensorMap> MapTensors(const SourceModel& model, SourceFormat format,
                                     const std::vector<SourceTensor>& tensors);

}  // namespace nightshift
