#include "engine/model/shape_manifest.h"

#include <algorithm>

#include "engine/model/pack_writer.h"
#include "engine/model/stored_panel.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

void AppendShard(int64_t outputs, int64_t bytes, TensorEntry& tensor, int64_t& extent_bytes) {
  const int64_t first_output =
      tensor.shards.empty() ? 0 : tensor.shards.back().first_output + tensor.shards.back().outputs;
  tensor.shards.push_back(
      {.first_output = first_output, .outputs = outputs, .offset = extent_bytes, .bytes = bytes});
  extent_bytes += RoundUp(bytes, kShardAlignment);
}

}  // namespace

PackManifest ManifestOf(const KnownShape& shape, DType weights) {
  PackManifest manifest;
  manifest.model_name = shape.name;
  manifest.source_format = "random";
  manifest.config = shape.config;
  for (const TensorSpec& spec : TensorsOf(shape)) {
    TensorEntry& tensor = manifest.tensors.emplace_back();
    tensor.name = spec.name;
    tensor.layout = spec.layout;
    tensor.outputs = spec.outputs;
    tensor.inputs = spec.inputs;
    if (spec.layout == TensorLayout::kVector) {
      tensor.dtype = DType::kF32;
      AppendShard(spec.outputs, spec.outputs * FloatBytes(DType::kF32), tensor,
                  manifest.extent_bytes);
      continue;
    }
    tensor.dtype = FitsStoredType(weights, spec.inputs) ? weights : DType::kBF16;
    const int64_t panel_bytes = StoredPanelBytes(tensor.dtype, spec.inputs);
    const int64_t shard_outputs = ShardPanels(tensor.dtype, spec.inputs) * kPanelOutputs;
    for (int64_t first = 0; first < spec.outputs; first += shard_outputs) {
      const int64_t outputs = std::min(shard_outputs, spec.outputs - first);
      AppendShard(outputs, (outputs + kPanelOutputs - 1) / kPanelOutputs * panel_bytes, tensor,
                  manifest.extent_bytes);
    }
  }
  return manifest;
}

}  // namespace nightshift
