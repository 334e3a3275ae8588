// Runs one job of requests through an engine, for benchmarks that time it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"

namespace nightshift {

struct JobTime {
  int64_t tokens = 0;  // computed of prompts, and sampled
  double seconds = 0;  // from the first admission to the last result
};

// Errors: of the engine; the first request that can never run.
absl::StatusOr<JobTime> RunJob(Engine& engine, std::vector<EngineRequest> requests);

// The quickstart's model in the user's cache.
std::string QuickstartPack();

// What main returns: 2 with the usage when the arguments are wrong, else runs the bench, 1 with its
// error.
int RunBenchMain(bool has_right_arguments, const char* usage,
                 const std::function<absl::Status()>& bench);

}  // namespace nightshift
