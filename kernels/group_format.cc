#include "kernels/group_format.h"

#include "kernels/panel_layout.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

constexpr int64_t kHalfBytes = 2;

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
    case DType::kQ2K:
    case DType::kQ3K:
    case DType::kQ4K:
    case DType::kQ5K:
    case DType::kQ6K:
      return std::nullopt;
  }
  return std::nullopt;
}

PanelPlanes PlanesOf(DType dtype, int64_t inputs) {
  const GroupFormat format = *GroupFormatOf(dtype);
  PanelPlanes planes;
  planes.padded_inputs = RoundUp(inputs, kInputsMultiple);
  const int64_t groups = (planes.padded_inputs + format.group - 1) / format.group;
  const int64_t plane_bytes = groups * kPanelOutputs * kHalfBytes;
  planes.scales = planes.padded_inputs * kPanelOutputs * format.bits / 8;
  planes.minimums = planes.scales + plane_bytes;
  planes.bytes = planes.minimums + (format.has_minimum ? plane_bytes : 0);
  return planes;
}

bool IsReadByOps(DType dtype) {
  return IsFloat(dtype) || GroupFormatOf(dtype).has_value();
}

int64_t PanelBytes(DType dtype, int64_t inputs) {
  return IsFloat(dtype) ? PanelElements(kPanelOutputs, inputs) * FloatBytes(dtype)
                        : PlanesOf(dtype, inputs).bytes;
}

}  // namespace nightshift
