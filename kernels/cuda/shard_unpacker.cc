#include "kernels/cuda/shard_unpacker.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/float_matmul_kernels.h"
#include "kernels/dtype.h"
#include "kernels/group_format.h"

namespace nightshift::cuda {

absl::StatusOr<ShardUnpacker> ShardUnpacker::Create() {
  ShardUnpacker unpacker;
  ASSIGN_OR_RETURN(unpacker.turned_, AllocateDeviceMemory(kBytes, "panels that are turned"));
  return unpacker;
}

absl::Status ShardUnpacker::Unpack(const WeightShardView& shard, CopyLane& lane) {
  if (!IsFloat(shard.dtype)) return absl::OkStatus();
  const int64_t panel_bytes = PanelBytes(shard.dtype, shard.inputs);
  const int64_t at_once = kBytes / panel_bytes;
  CHECK_GT(at_once, 0);
  Launcher launcher(lane.stream());
  for (int64_t first = 0; first < shard.panels(); first += at_once) {
    const int64_t panels = std::min(at_once, shard.panels() - first);
    // Of an upload: whoever uploaded may write.
    std::byte* place = const_cast<std::byte*>(shard.data) + first * panel_bytes;
    LaunchUnpackPanels(launcher, place, FloatBytes(shard.dtype), panels, shard.padded_inputs(),
                       turned_.get());
    launcher.Note("copy of turned panels",
                  cudaMemcpyAsync(place, turned_.get(), static_cast<size_t>(panels * panel_bytes),
                                  cudaMemcpyDeviceToDevice, lane.stream()));
  }
  RETURN_IF_ERROR(CudaStatus(launcher.error(), launcher.failed_step()));
  return lane.Wait("turning of uploaded weights");
}

}  // namespace nightshift::cuda
