// The manifest of a pack as JSON (pack_format.md, section "Manifest").
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/pack.h"

namespace nightshift {

// Serialises; fills in `manifest.digest` first.
std::string PackManifestToJson(PackManifest& manifest);

// Parses and checks everything that the text alone can show. `what` names the pack in messages.
// Errors: INVALID_ARGUMENT (not a manifest, or a newer version), DATA_LOSS naming the field.
absl::StatusOr<PackManifest> PackManifestFromJson(const std::string& text, const std::string& what);

}  // namespace nightshift
