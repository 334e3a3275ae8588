// DeviceWeight: a shard of a weight as kernels read it: floats in rows, padded as their panels were
// (what Device::UnpackShard left), integer groups in the panels of the pack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/group_format.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda {

struct DeviceWeight {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t panel_bytes = 0;
  int64_t first_output = 0;
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t padded_inputs = 0;
  // Of integer groups.
  int bits = 0;
  int group = 0;
  bool has_minimum = false;
  int zero = 0;
  int64_t scales = 0;  // offsets in a panel
  int64_t minimums = 0;
};

inline DeviceWeight DeviceWeightOf(const WeightShardView& shard) {
  DeviceWeight weight = {.data = shard.data,
                         .dtype = shard.dtype,
                         .panel_bytes = PanelBytes(shard.dtype, shard.inputs),
                         .first_output = shard.first_output,
                         .outputs = shard.outputs,
                         .inputs = shard.inputs,
                         .padded_inputs = shard.padded_inputs()};
  if (const auto format = GroupFormatOf(shard.dtype)) {
    const PanelPlanes planes = PlanesOf(shard.dtype, shard.inputs);
    weight.bits = format->bits;
    weight.group = static_cast<int>(format->group);
    weight.has_minimum = format->has_minimum;
    weight.zero = format->zero;
    weight.scales = planes.scales;
    weight.minimums = planes.minimums;
  }
  return weight;
}

}  // namespace nightshift::cuda
