#include "engine/model/weight_loader.h"

#include <algorithm>
#include <array>

#include "engine/model/stored_panel.h"
#include "kernels/base/check.h"
#include "kernels/convert.h"
#include "kernels/group_format.h"
#include "kernels/panel_layout.h"

namespace nightshift {
namespace {

// Elements that are converted at a time, so that the f32 in between stays in the L1 cache.
constexpr int64_t kConvertElements = 4096;

// Elements of a float type to BF16.
void RoundToBF16(DType source_type, const std::byte* source, int64_t count, std::byte* target) {
  std::array<float, kConvertElements> widened;
  for (int64_t first = 0; first < count; first += kConvertElements) {
    const int64_t part = std::min(kConvertElements, count - first);
    WidenToF32(source_type, source + first * FloatBytes(source_type), part, widened.data());
    RoundFromF32(widened.data(), part, DType::kBF16, target + first * FloatBytes(DType::kBF16));
  }
}

// One panel to a float type; of floats to BF16.
void ConvertPanel(const TensorEntry& tensor, std::span<const std::byte> stored, DType type,
                  std::byte* target) {
  if (IsFloat(tensor.dtype)) {
    RoundToBF16(tensor.dtype, stored.data(), PanelElements(kPanelOutputs, tensor.inputs), target);
    return;
  }
  std::array<float, kPanelOutputs * kExpandedPieceInputs> expanded;
  for (int64_t input = 0; input < tensor.inputs; input += kExpandedPieceInputs) {
    const int64_t count =
        ExpandPiece(tensor.dtype, stored, tensor.inputs, input, expanded.data()) * kPanelOutputs;
    RoundFromF32(expanded.data(), count, type, target);
    target += count * FloatBytes(type);
  }
}

int64_t BytesOf(const TensorEntry& tensor, int64_t outputs, ComputeType compute_type) {
  return RoundUp(outputs, kPanelOutputs) / kPanelOutputs *
         PanelBytes(LoadedDType(tensor.dtype, compute_type), tensor.inputs);
}

}  // namespace

DType LoadedDType(DType stored, ComputeType compute_type) {
  return GroupFormatOf(stored) ? stored : ExpandedDType(stored, compute_type);
}

DType ExpandedDType(DType stored, ComputeType compute_type) {
  if (FloatComputeType(compute_type) == ComputeType::kBF16) {
    return DType::kBF16;
  }
  return IsFloat(stored) ? stored : DType::kF32;
}

int64_t LoadedShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type) {
  return BytesOf(tensor, tensor.shards[shard_index].outputs, compute_type);
}

int64_t LoadedBytes(const TensorEntry& tensor, ComputeType compute_type) {
  return BytesOf(tensor, tensor.outputs, compute_type);
}

void ExpandShard(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type,
                 std::span<const std::byte> stored, std::span<std::byte> target,
                 WorkerPool& workers) {
  CHECK(tensor.layout == TensorLayout::kMatMul);
  const DType expanded = ExpandedDType(tensor.dtype, compute_type);
  CHECK_EQ(static_cast<int64_t>(target.size()),
           PanelElements(tensor.shards[shard_index].outputs, tensor.inputs) * FloatBytes(expanded));
  const size_t panel_bytes = static_cast<size_t>(StoredPanelBytes(tensor.dtype, tensor.inputs));
  const size_t expanded_bytes = static_cast<size_t>(PanelBytes(expanded, tensor.inputs));
  const int64_t num_panels = static_cast<int64_t>(target.size() / expanded_bytes);
  workers.ParallelFor(num_panels, [&](int64_t panel, int /*worker*/) {
    const size_t index = static_cast<size_t>(panel);
    ConvertPanel(tensor, stored.subspan(index * panel_bytes, panel_bytes), expanded,
                 target.data() + index * expanded_bytes);
  });
}

WeightShardView LoadedShardView(const TensorEntry& tensor, size_t shard_index,
                                ComputeType compute_type, const std::byte* data) {
  const ShardEntry& shard = tensor.shards[shard_index];
  return {.data = data,
          .dtype = LoadedDType(tensor.dtype, compute_type),
          .first_output = shard.first_output,
          .outputs = shard.outputs,
          .inputs = tensor.inputs};
}

}  // namespace nightshift
