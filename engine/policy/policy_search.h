// PolicySearch: the block, batch, types and placement of least time per request. Pure.
//
// Enumerates blocks, batches, prompt chunks, stored types and who attends; a linear program finds
// the placement for each (placement_program.h). Blocks are scanned in powers of 2, batches in
// powers of 4, the largest block that fits is bisected, and the best are refined in ever smaller
// steps.
//
// Source: FlexGen (Sheng et al. 2023) section 4.3.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/policy/cost_model.h"
#include "engine/policy/placement_program.h"
#include "kernels/dtype.h"

namespace nightshift {

// What may be chosen.
struct SearchSpace {
  int64_t requests = 1;  // of the job; no block is larger
  std::vector<DType> weights = {DType::kBF16};
  std::vector<DType> kv = {DType::kBF16};
  std::vector<int64_t> chunk_tokens = {0};
  std::optional<bool> host_attention;  // nothing: with and without
  // Fixed by the user.
  std::optional<int64_t> block_requests;
  std::optional<int64_t> batch_requests;
  std::array<std::optional<double>, kNumShares> shares;

  std::optional<double> deadline_seconds;  // for the whole job
  std::optional<double> max_held_seconds;  // for one request
  double margin = 0.0;                     // part of each capacity that stays free
  // What if: more memory of a tier; terms of this name in half the time.
  std::array<double, 3> more_bytes = {};
  std::string halved_term;

  // INVALID_ARGUMENT naming what is out of range.
  absl::Status Validate() const;
};

// A choice and its best placement.
struct SolvedChoice {
  BlockChoice choice;
  PlacementProgram program;
  PlacementSolution solution;
};

// The best choice that differs from the chosen one in one respect.
struct Alternative {
  std::string what;  // "weights in U4G64", "a block of 72"
  BlockChoice choice;
  absl::StatusOr<SolvedChoice> solved;  // or why it cannot be
};

struct SearchResult {
  SolvedChoice best;
  std::vector<Alternative> alternatives;
  int64_t num_programs = 0;  // that were solved
};

// Among choices of equal time that of types that come first in the space and of the sizes that take
// least of the disk, then the largest block, then the largest batch. The same arguments give the
// same result. Errors: INVALID_ARGUMENT of the space, of a program, or when the model can describe
// no choice; RESOURCE_EXHAUSTED when nothing fits: what the least choice (one request) lacks.
absl::StatusOr<SearchResult> SearchPolicy(const CostModel& model, const SearchSpace& space);

// Without alternatives.
absl::StatusOr<SearchResult> SearchBest(const CostModel& model, const SearchSpace& space);

// Only what refining `start` leads to: for a space that differs little from one for which `start`
// is best. `start` is of the space.
absl::StatusOr<SearchResult> SearchNear(const CostModel& model, const SearchSpace& space,
                                        const BlockChoice& start);

// The program of a choice within the space: fixed shares, bounds, margin, what ifs.
absl::StatusOr<PlacementProgram> ProgramOf(const CostModel& model, const SearchSpace& space,
                                           const BlockChoice& choice);

}  // namespace nightshift
