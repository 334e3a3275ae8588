// Reads GGUF files, versions 2 and 3.
// Source: the GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

#include "engine/model/source_file.h"
#include "engine/model/tensor_source.h"

namespace nightshift {

struct GgufMetadata {
  // Flat: key -> number, boolean or string. Strings may hold any bytes.
  nlohmann::json scalars = nlohmann::json::object();
  std::map<std::string, std::vector<std::string>> string_arrays;
  std::map<std::string, std::vector<int64_t>> integer_arrays;
  std::map<std::string, std::vector<double>> number_arrays;
};

// A GGUF file as a checkpoint, of the tensor types in gguf_types.h. Immutable, thread-safe.
class GgufCheckpoint : public TensorSource {
 public:
  // Errors: NOT_FOUND; INVALID_ARGUMENT naming key or tensor (also a type that is not supported);
  // DATA_LOSS for a file that ends early.
  static absl::StatusOr<std::unique_ptr<GgufCheckpoint>> Open(const std::string& path);

  GgufCheckpoint(SourceFile file, GgufMetadata metadata, std::vector<SourceTensor> tensors);

  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  // By name, or nullptr.
  const SourceTensor* Find(const std::string& name) const;
  absl::Status ReadRows(const SourceTensor& tensor, int64_t first_row,
                        std::span<std::byte> target) const override;

 private:
  SourceFile file_;
  GgufMetadata metadata_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace nightshift
