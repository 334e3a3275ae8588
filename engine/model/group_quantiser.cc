#include "engine/model/group_quantiser.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/stored_panel.h"
#include "kernels/base/check.h"
#include "kernels/convert.h"
#include "kernels/panel_layout.h"

namespace nightshift {
namespace {

constexpr int64_t kHalfBytes = 2;

// Nearest integer, ties to even, of a magnitude below 2^51: the sum has no bits left for fractions.
double RoundToInteger(double value) {
  constexpr double kShift = 0x1.8p52;
  return value + kShift - kShift;
}

// To f16 with one rounding, which F32ToF16 of a rounded f32 would not be; saturates.
uint16_t ToHalf(double value) {
  constexpr double kLargest = 65504.0;
  const double magnitude = std::min(std::abs(value), kLargest);
  // Neighbours of f16 are 2^-10 of their power of two apart, from 2^-14 down 2^-24.
  const int exponent = std::max(std::ilogb(std::max(magnitude, 0x1p-14)), -14);
  const double spacing = std::ldexp(1.0, exponent - 10);
  const double rounded = RoundToInteger(magnitude / spacing) * spacing;
  return F32ToF16(static_cast<float>(std::copysign(rounded, value)));
}

// What a group's values are counted in: value = low + code * spread / levels.
struct GroupRange {
  double low = 0.0;
  double spread = 0.0;
};

GroupRange RangeOf(const float* values, int64_t count, bool has_minimum) {
  const auto [lowest, highest] = std::minmax_element(values, values + count);
  const double low = static_cast<double>(*lowest) + 0.0;  // +0 of zeros of both signs
  const double high = static_cast<double>(*highest);
  return has_minimum ? GroupRange{low, high - low}
                     : GroupRange{0.0, std::max(std::abs(low), std::abs(high))};
}

// One group of row n, whose first value is input `first`.
class GroupWriter {
 public:
  GroupWriter(DType dtype, int64_t inputs, std::span<std::byte> panel)
      : format_(*GroupFormatOf(dtype)), planes_(PlanesOf(dtype, inputs)), panel_(panel.data()) {}

  int64_t group() const { return format_.group; }

  void Write(const float* values, int64_t count, int64_t n, int64_t first) {
    const GroupRange range = RangeOf(values, count, format_.has_minimum);
    const double levels =
        format_.has_minimum ? (1 << format_.bits) - 1 : (1 << (format_.bits - 1)) - 1;
    const int64_t index = (first / format_.group * kPanelOutputs + n) * kHalfBytes;
    WriteHalf(range.spread / levels, planes_.scales + index);
    if (format_.has_minimum) {
      WriteHalf(range.low, planes_.minimums + index);
    }
    for (int64_t i = 0; i < count; ++i) {
      const double offset = static_cast<double>(values[i]) - range.low;
      const double code = range.spread > 0.0 ? RoundToInteger(offset * levels / range.spread) : 0.0;
      WriteCode(static_cast<int>(code) + format_.zero, n, first + i);
    }
  }

 private:
  void WriteHalf(double value, int64_t offset) {
    const uint16_t bits = ToHalf(value);
    std::memcpy(panel_ + offset, &bits, sizeof(bits));
  }
  // The panel was zeros.
  void WriteCode(int code, int64_t n, int64_t k) {
    const int64_t element = PanelOffset(n, k, planes_.padded_inputs);
    if (format_.bits == 8) {
      panel_[element] = static_cast<std::byte>(code);
    } else {
      panel_[element / 2] |= static_cast<std::byte>(k % 2 == 0 ? code : code << 4);
    }
  }

  const GroupFormat format_;
  const PanelPlanes planes_;
  std::byte* const panel_;
};

}  // namespace

void QuantisePanel(DType dtype, std::span<const float> values, int64_t rows, int64_t inputs,
                   std::span<std::byte> panel) {
  CHECK(rows >= 1 && rows <= kPanelOutputs);
  CHECK_EQ(static_cast<int64_t>(values.size()), rows * inputs);
  CHECK_EQ(static_cast<int64_t>(panel.size()), StoredPanelBytes(dtype, inputs));
  std::fill(panel.begin(), panel.end(), std::byte{0});
  GroupWriter writer(dtype, inputs, panel);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < inputs; k += writer.group()) {
      writer.Write(values.data() + n * inputs + k, std::min(writer.group(), inputs - k), n, k);
    }
  }
}

}  // namespace nightshift
