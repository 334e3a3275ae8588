// HostAttention: attention of decoding rows whose keys and values lie beside the device, by the
// host's threads, while the device computes other batches.
//
// Only queries, keys, values and the output of attention cross: the rows of one batch lie in a slot
// on the device, owned by one (layer, batch), and in its twin on the host.
// Source: FlexGen (Sheng et al. 2023) section 4.1, "CPU delegation".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/memory/pool.h"
#include "engine/model/config.h"
#include "engine/model/forward.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace nightshift {

class HostAttention {
 public:
  // Bytes in each of the two memories.
  static int64_t Bytes(const ModelConfig& config, int64_t max_batch_rows, size_t num_slots);

  // What it refers to must outlive it. Errors: RESOURCE_EXHAUSTED (pool).
  static absl::StatusOr<std::unique_ptr<HostAttention>> Create(const ModelConfig& config,
                                                               int64_t max_batch_rows,
                                                               size_t num_slots, Device& device,
                                                               ComputeType compute_type,
                                                               Pool& device_pool, Pool& host_pool);

  // The rows of a batch of `rows` rows in a slot of the device.
  AttentionRows OnDevice(int64_t rows, size_t slot) const;

  // The three steps, each on its lane. `batch` has the spans that attend here.
  absl::Status DownloadQueries(const LayerBatch& batch, int64_t rows, size_t slot);
  absl::Status Attend(const Forward& forward, const LayerBatch& batch, int64_t rows, size_t slot);
  absl::Status UploadMixed(const LayerBatch& batch, int64_t rows, size_t slot);

  // Bytes that the first and the last of them move for these spans.
  static int64_t QueryBytes(const ModelConfig& config, std::span<const AttentionSpan> spans);
  static int64_t MixedBytes(const ModelConfig& config, std::span<const AttentionSpan> spans);

 private:
  HostAttention(const ModelConfig& config, int64_t max_batch_rows, Device& device,
                ComputeType compute_type)
      : config_(config),
        max_batch_rows_(max_batch_rows),
        device_(device),
        host_ops_(device.host_ops(compute_type)) {}

  AttentionRows RowsIn(const Buffer& memory, int64_t rows, size_t slot) const;

  const ModelConfig& config_;
  const int64_t max_batch_rows_;
  Device& device_;
  Ops& host_ops_;
  Buffer device_slots_;
  Buffer host_slots_;
};

}  // namespace nightshift
