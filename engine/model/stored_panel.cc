#include "engine/model/stored_panel.h"

#include <algorithm>
#include <array>

#include "engine/model/super_block.h"
#include "kernels/base/check.h"
#include "kernels/convert.h"
#include "kernels/panel_layout.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

constexpr int64_t kHalfBytes = 2;

void ExpandGroups(DType dtype, std::span<const std::byte> panel, int64_t inputs, int64_t first,
                  int64_t end, float* target) {
  const GroupFormat format = *GroupFormatOf(dtype);
  const PanelPlanes planes = PlanesOf(dtype, inputs);
  std::array<float, kPanelOutputs> scales{};
  std::array<float, kPanelOutputs> minimums{};
  for (int64_t k = first; k < end; k += format.group) {
    const int64_t count = std::min(format.group, end - k);
    const int64_t group_offset = k / format.group * kPanelOutputs * kHalfBytes;
    WidenToF32(DType::kF16, panel.data() + planes.scales + group_offset, kPanelOutputs,
               scales.data());
    if (format.has_minimum) {
      WidenToF32(DType::kF16, panel.data() + planes.minimums + group_offset, kPanelOutputs,
                 minimums.data());
    }
    ExpandCodes({.codes = panel.data() + k * kPanelOutputs * format.bits / 8,
                 .bits = format.bits,
                 .is_signed = !format.has_minimum,
                 .zero = format.zero},
                scales.data(), format.has_minimum ? minimums.data() : nullptr, count / 2,
                target + (k - first) * kPanelOutputs);
  }
  for (int64_t k = std::max(first, inputs); k < end; ++k) {
    for (int64_t n = 0; n < kPanelOutputs; ++n) {
      target[PanelOffset(n, k - first, end - first)] = 0.0F;
    }
  }
}

// The 64 blocks of the same 256 inputs, which follow each other.
void ExpandSuperBlocks(DType dtype, std::span<const std::byte> panel, int64_t first,
                       float* target) {
  const int64_t block_bytes = SuperBlockBytes(dtype);
  std::array<float, kSuperBlockValues> values{};
  const std::byte* block = panel.data() + first / kSuperBlockValues * kPanelOutputs * block_bytes;
  for (int64_t n = 0; n < kPanelOutputs; ++n, block += block_bytes) {
    ExpandSuperBlock(dtype, block, values);
    float* const pairs = target + PanelOffset(n, 0, kSuperBlockValues);
    for (int64_t pair = 0; pair < kSuperBlockValues / 2; ++pair) {
      std::copy_n(values.data() + 2 * pair, 2, pairs + pair * 2 * kPanelOutputs);
    }
  }
}

}  // namespace

std::optional<DType> StoredDType(int64_t number) {
  if (number < 0 || number > UINT8_MAX) {
    return std::nullopt;
  }
  const DType dtype = static_cast<DType>(number);
  if (IsReadByOps(dtype) || SuperBlockBytes(dtype) > 0) {
    return dtype;
  }
  return std::nullopt;
}

bool FitsStoredType(DType dtype, int64_t inputs) {
  return SuperBlockBytes(dtype) == 0 || inputs % kSuperBlockValues == 0;
}

int64_t StoredPanelBytes(DType dtype, int64_t inputs) {
  CHECK(FitsStoredType(dtype, inputs));
  if (const int64_t block_bytes = SuperBlockBytes(dtype); block_bytes > 0) {
    return inputs / kSuperBlockValues * kPanelOutputs * block_bytes;
  }
  return PanelBytes(dtype, inputs);
}

int64_t ExpandPiece(DType dtype, std::span<const std::byte> panel, int64_t inputs,
                    int64_t first_input, float* target) {
  CHECK_EQ(static_cast<int64_t>(panel.size()), StoredPanelBytes(dtype, inputs));
  const int64_t end =
      std::min(first_input + kExpandedPieceInputs, RoundUp(inputs, kInputsMultiple));
  if (SuperBlockBytes(dtype) > 0) {
    ExpandSuperBlocks(dtype, panel, first_input, target);
  } else {
    ExpandGroups(dtype, panel, inputs, first_input, end, target);
  }
  return end - first_input;
}

}  // namespace nightshift
