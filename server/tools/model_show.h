// `nightshift model show PACK`: what a pack holds, for people or as JSON.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "engine/model/pack.h"

namespace nightshift {

enum class ShowFormat : uint8_t { kText, kJson };

// Architecture, sizes, parameters, bytes by type, memory of each compute type, context length,
// tokenizer, template, digests. Text of several lines, or one JSON object, with a newline at the
// end. Errors: DATA_LOSS when tokenizer or template cannot be read.
absl::StatusOr<std::string> DescribeModel(const Pack& pack, ShowFormat format);

// The same for the pack at `path`. Errors: also those of Pack::Open.
absl::StatusOr<std::string> ShowModel(const std::string& path, ShowFormat format);

}  // namespace nightshift
