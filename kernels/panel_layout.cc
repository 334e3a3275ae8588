#include "kernels/panel_layout.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

// One panel, `rows` real rows of it. Pairs of k are moved whole, 2 * sizeof(T) bytes each.
template <typename T>
void PackPanel(const std::byte* source, int64_t rows, int64_t inputs, std::byte* target) {
  const int64_t padded_inputs = RoundUp(inputs, kInputsMultiple);
  if (rows < kPanelOutputs || inputs < padded_inputs) {
    std::memset(target, 0, static_cast<size_t>(kPanelOutputs * padded_inputs) * sizeof(T));
  }
  for (int64_t n = 0; n < rows; ++n) {
    const std::byte* row = source + static_cast<size_t>(n * inputs) * sizeof(T);
    for (int64_t k = 0; k < inputs; k += 2) {
      const size_t bytes = static_cast<size_t>(std::min<int64_t>(2, inputs - k)) * sizeof(T);
      std::memcpy(target + static_cast<size_t>(PanelOffset(n, k, padded_inputs)) * sizeof(T),
                  row + static_cast<size_t>(k) * sizeof(T), bytes);
    }
  }
}

}  // namespace

void PackPanels(const std::byte* source, DType dtype, int64_t outputs, int64_t inputs,
                std::byte* target) {
  CHECK(IsFloat(dtype));
  CHECK_GE(outputs, 1);
  CHECK_GE(inputs, 1);
  const int64_t element_bytes = FloatBytes(dtype);
  const int64_t panel_bytes = PanelElements(kPanelOutputs, inputs) * element_bytes;
  for (int64_t first = 0; first < outputs; first += kPanelOutputs) {
    const int64_t rows = std::min(kPanelOutputs, outputs - first);
    const std::byte* rows_begin = source + first * inputs * element_bytes;
    if (element_bytes == 4) {
      PackPanel<uint32_t>(rows_begin, rows, inputs, target);
    } else {
      PackPanel<uint16_t>(rows_begin, rows, inputs, target);
    }
    target += panel_bytes;
  }
}

}  // namespace nightshift
