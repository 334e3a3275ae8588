#include "engine/model/weight_loader.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/model/stored_panel.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/convert.h"
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

// Panels of a quantised type to F32 or BF16.
void ExpandPanels(const TensorEntry& tensor, std::span<const std::byte> stored, DType loaded,
                  std::byte* target) {
  const size_t panel_bytes = static_cast<size_t>(StoredPanelBytes(tensor.dtype, tensor.inputs));
  const int64_t elements = PanelElements(kPanelOutputs, tensor.inputs);
  std::vector<float> panel(static_cast<size_t>(elements));
  for (; !stored.empty(); stored = stored.subspan(panel_bytes)) {
    ExpandPanel(tensor.dtype, stored.first(panel_bytes), tensor.inputs, panel.data());
    RoundFromF32(panel.data(), elements, loaded, target);
    target += elements * FloatBytes(loaded);
  }
}

}  // namespace

DType LoadedDType(DType stored, ComputeType compute_type) {
  if (compute_type == ComputeType::kBF16) {
    return DType::kBF16;
  }
  return IsFloat(stored) ? stored : DType::kF32;
}

int64_t LoadedShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type) {
  return PanelElements(tensor.shards[shard_index].outputs, tensor.inputs) *
         FloatBytes(LoadedDType(tensor.dtype, compute_type));
}

int64_t LoadedBytes(const TensorEntry& tensor, ComputeType compute_type) {
  return PanelElements(tensor.outputs, tensor.inputs) *
         FloatBytes(LoadedDType(tensor.dtype, compute_type));
}

absl::Status LoadShard(const Pack& pack, const TensorEntry& tensor, size_t shard_index,
                       ComputeType compute_type, std::span<std::byte> target) {
  CHECK(tensor.layout == TensorLayout::kMatMul);
  CHECK_EQ(static_cast<int64_t>(target.size()),
           LoadedShardBytes(tensor, shard_index, compute_type));
  const DType loaded = LoadedDType(tensor.dtype, compute_type);
  if (loaded == tensor.dtype) {
    return pack.ReadShard(tensor, shard_index, target);
  }
  std::vector<std::byte> stored(static_cast<size_t>(tensor.shards[shard_index].bytes));
  RETURN_IF_ERROR(pack.ReadShard(tensor, shard_index, stored));
  if (IsFloat(tensor.dtype)) {
    RoundToBF16(tensor.dtype, stored.data(),
                static_cast<int64_t>(stored.size()) / FloatBytes(tensor.dtype), target.data());
  } else {
    ExpandPanels(tensor, stored, loaded, target.data());
  }
  return absl::OkStatus();
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

absl::StatusOr<std::vector<float>> LoadVector(const Pack& pack, const TensorEntry& tensor) {
  CHECK(tensor.layout == TensorLayout::kVector);
  std::vector<float> values(static_cast<size_t>(tensor.outputs));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(values));
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    const ShardEntry& shard = tensor.shards[i];
    RETURN_IF_ERROR(pack.ReadShard(
        tensor, i,
        bytes.subspan(static_cast<size_t>(shard.first_output * FloatBytes(DType::kF32)),
                      static_cast<size_t>(shard.bytes))));
  }
  return values;
}

}  // namespace nightshift
