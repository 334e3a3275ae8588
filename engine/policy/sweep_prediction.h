// SweepPrediction: what the sweeps of a loaded engine should take by a machine's rates, for exactly
// what each of them has computed and moved. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/model/pack.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/model_work.h"
#include "engine/policy/sweep_costs.h"
#include "engine/policy/work_rates.h"
#include "engine/schedule/timeline.h"

namespace nightshift {

class SweepPredictor {
 public:
  // Of an engine made with `options` for the pack of `manifest`. `hardware` is the machine's whole
  // profile. Errors: as SimulateRun.
  static absl::StatusOr<std::unique_ptr<SweepPredictor>> Create(const PackManifest& manifest,
                                                                const std::string& name,
                                                                const EngineOptions& options,
                                                                const HardwareProfile& hardware);

  // Seconds of each lane for a sweep that is over: computing and attention from its spans,
  // transfers from the bytes of its steps.
  LaneSeconds Past(std::span<const ComputedSpan> spans, int64_t sampled_tokens,
                   std::span<const StepTimes> steps) const;
  // The same for one that may come: transfers of weights alone.
  LaneSeconds Future(std::span<const ComputedSpan> spans, int64_t sampled_tokens) const;
  // The time that no sweep of these lanes can be below: of the busiest lane, or of all lanes where
  // nothing overlaps.
  double Bound(const LaneSeconds& lanes) const;

  const MemoryPlan& memory() const { return plan_; }

 private:
  SweepPredictor(const PackManifest& manifest, const EngineOptions& options,
                 HardwareProfile hardware, MemoryPlan plan);
  double TransferSeconds(const StepTimes& step) const;
  // Of decoding rows, that the host attends for: those whose pages lie beside the device.
  double HostShare() const;

  const ModelConfig config_;
  const EngineOptions options_;
  const HardwareProfile hardware_;
  const MemoryPlan plan_;
  const WorkRates rates_;
  const ModelWork work_;
  const SweepCosts costs_;
};

}  // namespace nightshift
