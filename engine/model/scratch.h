// Scratch: matrices carved one after another from memory that is reserved once and used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/check.h"
#include "kernels/tensor_view.h"

namespace nightshift {

// Floats from one row to the next: rows begin at whole cache lines.
constexpr int64_t RowStride(int64_t columns) {
  constexpr int64_t kCacheLineFloats = 16;
  return RoundUp(columns, kCacheLineFloats);
}

class Scratch {
 public:
  explicit Scratch(std::span<float> memory) : memory_(memory) {}

  // The next [rows, columns] of the memory, which must hold it.
  MatrixView Take(int64_t rows, int64_t columns) {
    const size_t size = static_cast<size_t>(rows * RowStride(columns));
    CHECK_LE(size, memory_.size());
    MatrixView matrix{memory_.data(), rows, columns, RowStride(columns)};
    memory_ = memory_.subspan(size);
    return matrix;
  }
  std::span<float> rest() const { return memory_; }

 private:
  std::span<float> memory_;
};

}  // namespace nightshift
