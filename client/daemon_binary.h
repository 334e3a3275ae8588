// Finding and executing `nightshiftd`, whose subcommands do what needs the engine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

// The executable `nightshiftd`: beside this one, in ../server of a build tree, or on PATH.
// Errors: FAILED_PRECONDITION naming the places.
absl::StatusOr<std::string> FindDaemonBinary();

// Replaces this process by `nightshiftd ARGUMENTS...`; returns only on errors.
absl::Status ExecuteDaemonTool(const std::vector<std::string>& arguments);

}  // namespace nightshift
