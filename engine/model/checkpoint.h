// Checkpoint: a model as it was published, whatever the format: a Hugging Face folder or a GGUF
// file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/families.h"
#include "engine/model/pack.h"
#include "engine/model/tensor_source.h"

namespace nightshift {

struct GgufMetadata;

struct Checkpoint {
  SourceFormat format = SourceFormat::kSafetensors;
  std::string name;  // of folder or file without ending: what people call the model
  SourceModel model;
  std::unique_ptr<TensorSource> tensors;
  const GgufMetadata* gguf = nullptr;  // of `tensors`, for GGUF
  std::vector<std::string> files;      // all that configuration and weights were read from
};

// Errors: NOT_FOUND; INVALID_ARGUMENT, DATA_LOSS naming file and field or tensor.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path);

// Size and checksum of each file. Reads them all.
absl::StatusOr<std::vector<FileDigest>> DigestFiles(const std::vector<std::string>& paths);

}  // namespace nightshift
