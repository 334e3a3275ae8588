#include "engine/model/finite_weights.h"

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

#include "engine/model/gguf_types.h"

namespace nightshift {
namespace {

// A float is NaN or infinite when all bits of its exponent are set. The first loop has no early
// end, so that it becomes vector code.
template <typename Bits>
std::optional<int64_t> FirstNonFinite(std::span<const std::byte> row, Bits exponent) {
  const size_t count = row.size() / sizeof(Bits);
  const auto is_finite = [&](size_t i) {
    Bits bits = 0;
    std::memcpy(&bits, row.data() + i * sizeof(Bits), sizeof(Bits));
    return (bits & exponent) != exponent;
  };
  bool all_finite = true;
  for (size_t i = 0; i < count; ++i) {
    all_finite &= is_finite(i);
  }
  for (size_t i = 0; !all_finite && i < count; ++i) {
    if (!is_finite(i)) {
      return static_cast<int64_t>(i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> FirstNonFiniteValue(DType dtype, std::span<const std::byte> values) {
  switch (dtype) {
    case DType::kF32:
      return FirstNonFinite<uint32_t>(values, 0x7f800000U);
    case DType::kF16:
      return FirstNonFinite<uint16_t>(values, 0x7c00U);
    default:
      return FirstNonFinite<uint16_t>(values, 0x7f80U);
  }
}

absl::Status CheckFiniteRow(const SourceTensor& tensor, int64_t row_index,
                            std::span<const std::byte> row) {
  if (tensor.blocks != nullptr) {
    const std::optional<int64_t> block = FirstNonFiniteBlock(*tensor.blocks, row);
    if (block) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor.name, " row ", row_index, " block ", *block, " of ",
          tensor.blocks->name, ": its scale or minimum is NaN or infinite; the file is damaged"));
    }
    return absl::OkStatus();
  }
  const std::optional<int64_t> index = FirstNonFiniteValue(tensor.dtype, row);
  if (index) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " row ", row_index,
                                                   " value ", *index,
                                                   " is NaN or infinite; the file is damaged"));
  }
  return absl::OkStatus();
}

}  // namespace nightshift
