// Translates the metadata of a GGUF file.
#pragma once

#include "absl/status/statusor.h"

#include "engine/model/families.h"
#include "engine/model/gguf.h"

namespace nightshift {

// The result's config is valid but for tied_head. Errors: INVALID_ARGUMENT naming key and what is
// supported; DATA_LOSS when the table of RoPE divisors cannot be read.
absl::StatusOr<SourceModel> SourceModelFromGguf(const GgufCheckpoint& checkpoint);

}  // namespace nightshift
