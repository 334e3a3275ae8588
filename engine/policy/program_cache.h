// ProgramCache: a cost model that asks another one once for each choice. Planning asks again and
// again: for alternatives, and with more memory or faster lanes, which change no program.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/statusor.h"

#include "engine/policy/cost_model.h"

namespace nightshift {

// Threads: one.
class ProgramCache final : public CostModel {
 public:
  explicit ProgramCache(const CostModel& model) : model_(model) {}  // outlives this

  absl::StatusOr<PlacementProgram> Program(const BlockChoice& choice) const override;

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool>;

  const CostModel& model_;
  mutable std::map<Key, absl::StatusOr<PlacementProgram>> programs_;
};

}  // namespace nightshift
