#include "engine/model/stored_panel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/convert.h"
#include "kernels/panel_layout.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

constexpr int64_t kBlock = 32;  // elements of a block of Q8_0, Q4_0, Q4_1
constexpr int64_t kHalfBytes = 2;

// Offsets of the planes of one panel.
struct PanelPlanes {
  int64_t padded_inputs = 0;
  int64_t scales = 0;    // fp16 [groups][64]
  int64_t minimums = 0;  // fp16 [groups][64], if the type has them
  int64_t bytes = 0;
};

PanelPlanes PlanesOf(const GroupFormat& format, int64_t inputs) {
  PanelPlanes planes;
  planes.padded_inputs = RoundUp(inputs, kInputsMultiple);
  const int64_t groups = (planes.padded_inputs + format.group - 1) / format.group;
  const int64_t plane_bytes = groups * kPanelOutputs * kHalfBytes;
  planes.scales = planes.padded_inputs * kPanelOutputs * format.bits / 8;
  planes.minimums = planes.scales + plane_bytes;
  planes.bytes = planes.minimums + (format.has_minimum ? plane_bytes : 0);
  return planes;
}

// Code of element j of a block whose quants begin at `quants`.
uint8_t BlockCode(int bits, const std::byte* quants, int64_t j) {
  if (bits == 8) {
    return std::to_integer<uint8_t>(quants[j]);
  }
  const uint8_t pair = std::to_integer<uint8_t>(quants[j % (kBlock / 2)]);
  return j < kBlock / 2 ? pair & 0x0fU : static_cast<uint8_t>(pair >> 4);
}

// Packs one block of row `n`, whose first element is `first_input`.
void PackBlock(const GroupFormat& format, const PanelPlanes& planes, const std::byte* block,
               int64_t n, int64_t first_input, std::byte* panel) {
  const int64_t group = first_input / kBlock * kPanelOutputs + n;
  std::memcpy(panel + planes.scales + group * kHalfBytes, block, kHalfBytes);
  block += kHalfBytes;
  if (format.has_minimum) {
    std::memcpy(panel + planes.minimums + group * kHalfBytes, block, kHalfBytes);
    block += kHalfBytes;
  }
  for (int64_t j = 0; j < kBlock; j += 2) {
    const uint8_t even = BlockCode(format.bits, block, j);
    const uint8_t odd = BlockCode(format.bits, block, j + 1);
    const int64_t element = PanelOffset(n, first_input + j, planes.padded_inputs);
    if (format.bits == 8) {
      panel[element] = std::byte{even};
      panel[element + 1] = std::byte{odd};
    } else {
      panel[element / 2] = static_cast<std::byte>(even | (odd << 4));
    }
  }
}

// Code of an element of a panel, less the type's zero.
int CodeAt(const GroupFormat& format, const std::byte* panel, int64_t element) {
  if (format.bits == 4) {
    const int pair = std::to_integer<int>(panel[element / 2]);
    return (element % 2 == 0 ? pair & 0x0f : pair >> 4) - format.zero;
  }
  const uint8_t code = std::to_integer<uint8_t>(panel[element]);
  return format.has_minimum ? code : static_cast<int8_t>(code);
}

}  // namespace

std::optional<GroupFormat> GroupFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kI8G32:
      return GroupFormat{.bits = 8, .group = 32};
    case DType::kI8G64:
      return GroupFormat{.bits = 8, .group = 64};
    case DType::kI4G32:
      return GroupFormat{.bits = 4, .group = 32, .zero = 8};
    case DType::kI4G64:
      return GroupFormat{.bits = 4, .group = 64, .zero = 8};
    case DType::kU4G32:
      return GroupFormat{.bits = 4, .group = 32, .has_minimum = true};
    case DType::kU4G64:
      return GroupFormat{.bits = 4, .group = 64, .has_minimum = true};
    case DType::kU8G32:
      return GroupFormat{.bits = 8, .group = 32, .has_minimum = true};
    case DType::kU8G64:
      return GroupFormat{.bits = 8, .group = 64, .has_minimum = true};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<DType> StoredDType(int64_t number) {
  if (number < 0 || number > UINT8_MAX) {
    return std::nullopt;
  }
  const DType dtype = static_cast<DType>(number);
  if (IsFloat(dtype) || GroupFormatOf(dtype)) {
    return dtype;
  }
  return std::nullopt;
}

int64_t StoredPanelBytes(DType dtype, int64_t inputs) {
  const std::optional<GroupFormat> format = GroupFormatOf(dtype);
  if (!format) {
    return PanelElements(kPanelOutputs, inputs) * FloatBytes(dtype);
  }
  return PlanesOf(*format, inputs).bytes;
}

std::optional<int64_t> BlockRowBytes(DType dtype, int64_t inputs) {
  const std::optional<GroupFormat> format = GroupFormatOf(dtype);
  const bool block_type =
      dtype == DType::kI8G32 || dtype == DType::kI4G32 || dtype == DType::kU4G32;
  if (!block_type || inputs % kBlock != 0) {
    return std::nullopt;
  }
  const int64_t block_bytes =
      kBlock * format->bits / 8 + kHalfBytes + (format->has_minimum ? kHalfBytes : 0);
  return inputs / kBlock * block_bytes;
}

void PackBlocks(DType dtype, std::span<const std::byte> source, int64_t rows, int64_t inputs,
                std::span<std::byte> panel) {
  const GroupFormat format = *GroupFormatOf(dtype);
  const PanelPlanes planes = PlanesOf(format, inputs);
  const int64_t row_bytes = *BlockRowBytes(dtype, inputs);
  const int64_t block_bytes = row_bytes / (inputs / kBlock);
  CHECK_EQ(static_cast<int64_t>(panel.size()), planes.bytes);
  CHECK_LE(rows * row_bytes, static_cast<int64_t>(source.size()));
  if (rows < kPanelOutputs) {
    std::fill(panel.begin(), panel.end(), std::byte{0});
  }
  for (int64_t n = 0; n < rows; ++n) {
    const std::byte* const row = source.data() + n * row_bytes;
    for (int64_t block = 0; block < inputs / kBlock; ++block) {
      PackBlock(format, planes, row + block * block_bytes, n, block * kBlock, panel.data());
    }
  }
}

void ExpandPanel(DType dtype, std::span<const std::byte> panel, int64_t inputs, float* target) {
  const GroupFormat format = *GroupFormatOf(dtype);
  const PanelPlanes planes = PlanesOf(format, inputs);
  CHECK_EQ(static_cast<int64_t>(panel.size()), planes.bytes);
  std::array<float, kPanelOutputs> scales{};
  std::array<float, kPanelOutputs> minimums{};
  for (int64_t k = 0; k < inputs; ++k) {
    if (k % format.group == 0) {
      const int64_t group_offset = k / format.group * kPanelOutputs * kHalfBytes;
      WidenToF32(DType::kF16, panel.data() + planes.scales + group_offset, kPanelOutputs,
                 scales.data());
      if (format.has_minimum) {
        WidenToF32(DType::kF16, panel.data() + planes.minimums + group_offset, kPanelOutputs,
                   minimums.data());
      }
    }
    for (size_t n = 0; n < kPanelOutputs; ++n) {
      const int64_t element = PanelOffset(static_cast<int64_t>(n), k, planes.padded_inputs);
      // Code times scale is exact in f32; only adding the minimum rounds.
      target[element] =
          static_cast<float>(CodeAt(format, panel.data(), element)) * scales[n] + minimums[n];
    }
  }
  for (int64_t k = inputs; k < planes.padded_inputs; ++k) {
    for (int64_t n = 0; n < kPanelOutputs; ++n) {
      target[PanelOffset(n, k, planes.padded_inputs)] = 0.0F;
    }
  }
}

}  // namespace nightshift
