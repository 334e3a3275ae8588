// TierOptions: where weights, keys and values, and activations lie, and how a sweep moves them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "engine/memory/shard_reader.h"
#include "engine/schedule/sweep_schedule.h"

namespace nightshift {

// Shares of the whole, 0 to 1, of device and host; the rest is on disk. With unified memory the
// host's share is the device's too.
struct TierShares {
  double device = -1.0;  // negative, both: as the memory plan chooses
  double host = -1.0;

  bool is_given() const { return device >= 0.0 || host >= 0.0; }
  double of_device() const { return device < 0.0 ? 0.0 : device; }
  double of_host() const { return host < 0.0 ? 0.0 : host; }
};

// Where streamed weights wait for their use.
enum class WeightBuffering : uint8_t {
  kRing,       // some shards; a sweep is one batch
  kTwoLayers,  // two layers; a sweep has several batches
};

struct TierOptions {
  // Above 0: a device with memory of its own, made of this machine's, of so many bytes. Then
  // memory_budget_bytes is the host's. 0: one memory.
  int64_t device_budget_bytes = 0;
  // Its device is this GPU, as CUDA counts them, instead; the rates below are then the GPU's own.
  std::optional<int32_t> gpu;
  // Of a device made of this machine's memory, by pacing; 0: as fast as this machine is.
  double upload_bytes_per_s = 0.0;
  double download_bytes_per_s = 0.0;
  double device_flops_per_s = 0.0;

  // The disk for keys, values and activations. The files have no names and are gone with the
  // process.
  int64_t disk_budget_bytes = 0;
  std::string spill_folder;

  TierShares weights;      // not given: weight_budget_bytes says, or what fits
  TierShares kv;           // not given: all on the device
  TierShares activations;  // not given: all on the device

  ScheduleKind schedule = ScheduleKind::kRolling;
  WeightBuffering buffering = WeightBuffering::kRing;
  // Streamed shards are held to their checksums at every read, or only at the first one.
  WeightChecks weight_checks = WeightChecks::kEveryRead;
  // False: one step after the other, which is for measuring what overlap gives.
  bool overlap = true;
  // Decoding requests whose keys and values lie beside the device attend on the host.
  bool host_attention = false;

  bool unified_memory() const { return device_budget_bytes == 0; }
  absl::Status Validate() const;
};

}  // namespace nightshift
