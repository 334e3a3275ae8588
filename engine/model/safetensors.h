// Reads safetensors checkpoints: one file, or several with an index.
// Source: the safetensors format, https://github.com/huggingface/safetensors (format section).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/source_file.h"
#include "engine/model/tensor_source.h"

namespace nightshift {

// As in the reference implementation.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Parses the header of one file: tensors sorted by offset, without gap or overlap, covering all
// bytes after the header; types F32, F16 and BF16. `file_index` is written into each tensor.
// Errors: INVALID_ARGUMENT naming file and tensor; DATA_LOSS for a file that ends early.
absl::StatusOr<std::vector<SourceTensor>> ReadSafetensorsHeader(const SourceFile& file,
                                                                size_t file_index);

// A folder's checkpoint: `model.safetensors`, or the files that `model.safetensors.index.json`
// names (plain names inside the folder only). Immutable, thread-safe.
class SafetensorsCheckpoint : public TensorSource {
 public:
  // Errors: NOT_FOUND when the folder has neither; INVALID_ARGUMENT, DATA_LOSS as above, also for
  // tensors that the index and the files do not agree about.
  static absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> Open(const std::string& folder);

  SafetensorsCheckpoint(std::vector<SourceFile> files, std::vector<SourceTensor> tensors);

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  absl::Status ReadRows(const SourceTensor& tensor, int64_t first_row,
                        std::span<std::byte> target) const override;
  const std::vector<SourceFile>& files() const { return files_; }

 private:
  std::vector<SourceFile> files_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace nightshift
