// The files that --input means.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nightshift {

struct InputPath {
  std::string path;
  // Its part from the first folder or file on that a wildcard matched, or the file's name: unique,
  // valid UTF-8, at most 400 bytes, and the same whatever else is matched.
  std::string name;
};

// Expands each pattern (*, ? and [...], as in a shell) to its matches in byte order; a path
// without wildcards is itself. A file that is matched twice counts once. A match need not be
// readable, that is found out later; a path without wildcards must exist.
// Errors: INVALID_ARGUMENT for a pattern that matches nothing, a folder that cannot be read, **, a
// path that does not exist or is a folder, two files of one name, a name that is too long.
absl::StatusOr<std::vector<InputPath>> FindInputs(const std::vector<std::string>& patterns);

}  // namespace nightshift
