// NightshiftCost: what a run costs with this engine, in closed form. Pure.
//
// The rolling schedule decides, whatever lies where, which sweeps a job takes: some that are full
// of prompt tokens, some that only decode, and those at both ends where the block fills and drains.
// So the job is run through the real schedule (request_flow) with at most 64 requests that stand
// for the block's, its sweeps are sorted into a few kinds, and each kind is a phase: so many times
// the longest of its lanes. Within a sweep what a lane takes is linear in the nine shares:
//
//   compute  matmuls by the curve of rows a batch, attention of prompts and of what decodes on the
//            device, work between matmuls, a step's overhead for each streamed shard, for each batch
//            expanding of super-blocks that are not on the device, and of integer groups where the
//            machine has no rate of multiplying them as they are
//   read     weights, pages and rows on disk; through a ring that is shorter than a layer's
//            attention also the time in which it is full
//   upload, download, write    as the steps move them; with unified memory none of the first two
//   host attention             decoding rows whose keys lie beside the device
//
// Shards of the embedding are waited for; experts, read when they are known, are a phase of their
// own. Memory is what the pools allocate (memory_plan.h), the rings in proportion to what is
// streamed. Compression: weights beside the device take their stored bytes, on the device those
// that ops read, which of integer groups are the same; compressed keys and values are unpacked at
// each use by the device, and read in place by the host (FlexGen's model, extended by compression
// terms).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "engine/model/pack.h"
#include "engine/policy/cost_model.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/workload_profile.h"
#include "kernels/dtype.h"

namespace nightshift {

struct NightshiftModel {
  std::string name;
  // By the type of its matrices: a pack has one, a known shape any.
  std::map<DType, PackManifest> forms;
  double sparse_attention = 1.0;  // as EngineOptions
};

// The type of most bytes of a pack's matrices: of its one form.
DType MatrixType(const PackManifest& manifest);

class NightshiftCost : public CostModel {
 public:
  // What is referred to outlives the model. Errors: INVALID_ARGUMENT (workload, profile, no form).
  static absl::StatusOr<std::unique_ptr<NightshiftCost>> Create(const NightshiftModel& model,
                                                                ComputeType compute_type,
                                                                const HardwareProfile& hardware,
                                                                const WorkloadProfile& workload);
  ~NightshiftCost() override;

  // Errors: INVALID_ARGUMENT for types that the model has no form of, and numbers out of range.
  absl::StatusOr<PlacementProgram> Program(const BlockChoice& choice) const override;

  // As stored, of the largest layer: for OptionsFor.
  int64_t LayerBytes(DType weights) const;

 private:
  struct Form;
  NightshiftCost(const NightshiftModel& model, ComputeType compute_type,
                 const HardwareProfile& hardware, WorkloadProfile workload);

  const NightshiftModel& model_;
  const ComputeType compute_type_;
  const HardwareProfile& hardware_;
  const WorkloadProfile workload_;
  std::map<DType, std::unique_ptr<Form>> forms_;
};

}  // namespace nightshift
