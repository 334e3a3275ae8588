// The JSON header of a safetensors file.
// Source: the safetensors format, https://github.com/huggingface/safetensors (format section).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/tensor_source.h"

namespace nightshift {

// Parses a header without building a tree: memory grows with the tensors only. The result is in
// the order of the text; offsets are relative to the first byte after the header and lie in
// [0, data_bytes]. Shape x type = bytes holds for every tensor; names may still repeat.
// `what` names the file in messages.
// Errors: INVALID_ARGUMENT naming file, tensor and field.
absl::StatusOr<std::vector<SourceTensor>> ParseSafetensorsHeader(const std::string& text,
                                                                 int64_t data_bytes,
                                                                 const std::string& what);

}  // namespace nightshift
