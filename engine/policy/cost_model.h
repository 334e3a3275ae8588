// CostModel: the one interface of what a run costs on a machine. Pure.
//
// Three stand behind it: `paper` and `flexgen` (flexgen_cost.h), as published and as released, and
// `nightshift` (nightshift_cost.h), which describes this engine.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "engine/policy/placement_program.h"
#include "kernels/dtype.h"

namespace nightshift {

// What the search enumerates; the linear program finds the shares for it.
struct BlockChoice {
  int64_t block_requests = 1;  // held at one time
  int64_t batch_requests = 1;  // of those, on the device at one time
  int64_t chunk_tokens = 0;    // most prompt tokens of one request in a sweep; 0: the whole prompt
  DType weights = DType::kBF16;  // as stored
  DType kv = DType::kBF16;
  bool host_attention = false;  // attention over keys and values beside the device, by the host
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  // The program of one choice. Errors: INVALID_ARGUMENT for a choice that the model cannot
  // describe.
  virtual absl::StatusOr<PlacementProgram> Program(const BlockChoice& choice) const = 0;
};

}  // namespace nightshift
