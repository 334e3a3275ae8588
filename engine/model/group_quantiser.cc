#include "engine/model/group_quantiser.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/model/stored_panel.h"
#include "kernels/base/check.h"
#include "kernels/panel_layout.h"
#include "kernels/quantise_group.h"

namespace nightshift {
namespace {

// One group of row n, whose first value is input `first`.
class GroupWriter {
 public:
  GroupWriter(DType dtype, int64_t inputs, std::span<std::byte> panel)
      : format_(*GroupFormatOf(dtype)), planes_(PlanesOf(dtype, inputs)), panel_(panel.data()) {}

  int64_t group() const { return format_.group; }

  void Write(const float* values, int64_t count, int64_t n, int64_t first) {
    std::array<uint8_t, kPanelOutputs> codes = {};
    const GroupNumbers numbers = QuantiseGroup(format_, values, count, codes.data());
    const int64_t index =
        (first / format_.group * kPanelOutputs + n) * static_cast<int64_t>(sizeof(numbers.scale));
    std::memcpy(panel_ + planes_.scales + index, &numbers.scale, sizeof(numbers.scale));
    if (format_.has_minimum) {
      std::memcpy(panel_ + planes_.minimums + index, &numbers.minimum, sizeof(numbers.minimum));
    }
    for (int64_t i = 0; i < count; ++i) {
      WriteCode(codes[static_cast<size_t>(i)], n, first + i);
    }
  }

 private:
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
