// The types of GGUF's tensors: their numbers, how their blocks lie in a file, and what they become
// in a pack.
// Source: ggml_type and the block structures of ggml, https://github.com/ggml-org/ggml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kernels/dtype.h"

namespace nightshift {

// A type that we read. A row is whole blocks of `values` values and `bytes` bytes each.
struct GgufType {
  uint32_t number;   // in the tensor table of a file
  const char* name;  // "Q5_0"
  DType stored;      // what a pack keeps its values as, without loss
  int64_t values;
  int64_t bytes;
  int bits;            // of a code; 0 of floats
  int64_t scale_at;    // byte of a block's fp16 scale; -1: no block has one
  int64_t minimum_at;  // of its fp16 minimum; -1: none

  bool is_float() const { return values == 1; }
};

// By the number in a file; nullptr when it is not supported.
const GgufType* FindGgufType(uint32_t number);

// "IQ4_XS", also for types that we do not read; "number 77" for those that we do not know.
std::string GgufTypeName(uint32_t number);

// "F32, F16, ...": for refusals.
std::string SupportedGgufTypes();

// Number of the first block of `row` whose scale or minimum is NaN or infinite. Not for floats.
std::optional<int64_t> FirstNonFiniteBlock(const GgufType& type, std::span<const std::byte> row);

// Packs `rows` (1 to 64) rows of blocks, one after another in `source`, into one panel of
// type.stored; the values stay as they are. Rows beyond are zeros. Not for floats.
void PackBlocks(const GgufType& type, std::span<const std::byte> source, int64_t rows,
                int64_t inputs, std::span<std::byte> panel);

}  // namespace nightshift
