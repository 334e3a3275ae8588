// Jobs as plans see them, on packs of known shapes, for benchmarks of plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/policy/workload_profile.h"

namespace nightshift {

WorkloadProfile Equal(int64_t prompt_tokens, int64_t output_tokens, int64_t requests);
// Outputs of 1/8 to 8/8 of the most.
WorkloadProfile Skewed(int64_t prompt_tokens, int64_t most_output_tokens, int64_t requests);

// A pack of random weights beside the quickstart's, made when it is not there; an empty shape is
// the quickstart's model. Errors: as FindKnownShape and WriteRandomPack.
absl::StatusOr<std::string> PackOfShape(const std::string& shape);

// Requests of random tokens in random order, as a queue has them. The same arguments give the same.
std::vector<EngineRequest> RequestsOf(const WorkloadProfile& workload, int64_t vocabulary);

}  // namespace nightshift
