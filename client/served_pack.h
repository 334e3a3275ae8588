// Whether the daemon that listens serves the pack that a path names: by digest, not by name.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "nightshift/v1/server.pb.h"

namespace nightshift {

// The digest that the manifest of the pack at `path` states.
// Errors: NOT_FOUND without a manifest, INVALID_ARGUMENT for one without a digest.
absl::StatusOr<std::string> PackDigest(const std::string& path);

// OK when `models` has one called `name` with `digest`, the digest of the pack at `path`. Pure.
// Errors: FAILED_PRECONDITION saying what is served instead and how to go on.
absl::Status CheckServed(const std::vector<v1::Model>& models, const std::string& name,
                         const std::string& digest, const std::string& path);

}  // namespace nightshift
