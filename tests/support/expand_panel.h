// A whole panel of a quantised type to f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/stored_panel.h"
#include "kernels/panel_layout.h"

namespace nightshift {

// f32 [K/2][64][2], K padded to 32.
inline std::vector<float> ExpandPanel(DType dtype, std::span<const std::byte> panel,
                                      int64_t inputs) {
  std::vector<float> expanded(static_cast<size_t>(PanelElements(kPanelOutputs, inputs)), -7.0F);
  float* target = expanded.data();
  for (int64_t input = 0; input < inputs; input += kExpandedPieceInputs) {
    target += ExpandPiece(dtype, panel, inputs, input, target) * kPanelOutputs;
  }
  return expanded;
}

}  // namespace nightshift
