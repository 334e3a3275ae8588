// Refuses weights that are no numbers: one NaN makes every logit NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"

#include "engine/model/tensor_source.h"

namespace nightshift {

// Index of the first value of a float type that is NaN or infinite.
std::optional<int64_t> FirstNonFiniteValue(DType dtype, std::span<const std::byte> values);

// `row` holds row `row_index` of the tensor as its source stores it.
// Errors: INVALID_ARGUMENT with tensor, row and the index of the first value that is NaN or
// infinite, or of the first block whose scale or minimum is.
absl::Status CheckFiniteRow(const SourceTensor& tensor, int64_t row_index,
                            std::span<const std::byte> row);

}  // namespace nightshift
