// Translates a Hugging Face model's configuration files.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "engine/model/families.h"

namespace nightshift {

// From the texts of config.json and generation_config.json (empty if there is none). End ids are
// those of both, generation_config.json first. The result's config is valid but for tied_head.
// Errors: INVALID_ARGUMENT naming file, field and what is supported.
absl::StatusOr<SourceModel> SourceModelFromHuggingFace(const std::string& config_json,
                                                       const std::string& generation_config_json);

}  // namespace nightshift
