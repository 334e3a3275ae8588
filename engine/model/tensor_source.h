// TensorSource: the tensors of a checkpoint, as safetensors or GGUF files hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "kernels/dtype.h"

namespace nightshift {

// Bounds on what a checkpoint may hold, far above published models.
inline constexpr int64_t kMaxSourceTensors = 1'000'000;
inline constexpr size_t kMaxSourceDimensions = 8;
inline constexpr size_t kMaxSourceNameBytes = 512;

struct GgufType;

// One tensor as a checkpoint stores it. Rows lie one after another, `row_bytes` each.
struct SourceTensor {
  std::string name;
  DType dtype = DType::kF32;  // what a pack keeps it as
  // How rows of a quantised type lie (gguf_types.h); nullptr for float types.
  const GgufType* blocks = nullptr;
  // A causal mask of one byte an element, whatever dtype says: never a weight.
  bool is_mask = false;
  std::vector<int64_t> shape;  // slowest dimension first, as Hugging Face writes it; at least one
  int64_t rows = 0;            // product of all but the last
  int64_t row_bytes = 0;
  size_t file_index = 0;
  int64_t offset = 0;  // in that file; [offset, offset + rows * row_bytes) lies inside it
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Unique names.
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  // Reads rows [first_row, first_row + n) where n * row_bytes is the length of `target`.
  // Errors: DATA_LOSS with file and offset.
  virtual absl::Status ReadRows(const SourceTensor& tensor, int64_t first_row,
                                std::span<std::byte> target) const = 0;
};

}  // namespace nightshift
