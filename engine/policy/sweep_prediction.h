// SweepPredictor: what the sweeps of a loaded engine should take by a machine's rates, for exactly
// what each of them has computed and moved.
#pragma once

#include <cstdint>
#include <map>
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
#include "engine/policy/sweep_timing.h"
#include "engine/policy/work_rates.h"
#include "engine/schedule/timeline.h"

namespace nightshift {

struct PredictedSweep {
  LaneSeconds lanes = {};
  // Its time as a multiple of what SweepPredictor::Bound says of these lanes: what its steps wait
  // for each other. At least 1.
  double stretch = 1.0;
};

// One thread: it keeps what it has found of sweeps that ask about the same.
class SweepPredictor {
 public:
  // Of an engine made with `options` for the pack of `manifest`. `hardware` is the machine's whole
  // profile. Errors: as SimulateRun.
  static absl::StatusOr<std::unique_ptr<SweepPredictor>> Create(const PackManifest& manifest,
                                                                const std::string& name,
                                                                const EngineOptions& options,
                                                                const HardwareProfile& hardware);

  // Of a sweep that is over: computing and attention from its spans, transfers from the bytes of
  // its steps.
  PredictedSweep Past(std::span<const ComputedSpan> spans, int64_t sampled_tokens,
                      std::span<const StepTimes> steps);
  // The same for one that may come: transfers of weights alone.
  PredictedSweep Future(std::span<const ComputedSpan> spans, int64_t sampled_tokens);
  // The time that no sweep of these lanes can be below: of the busiest lane, or of all lanes where
  // nothing overlaps.
  double Bound(const LaneSeconds& lanes) const;

  const MemoryPlan& memory() const { return plan_; }

 private:
  SweepPredictor(const PackManifest& manifest, const EngineOptions& options,
                 HardwareProfile hardware, MemoryPlan plan);
  SweepLoad LoadOf(std::span<const ComputedSpan> spans, int64_t sampled_tokens) const;
  // What the steps moved of each batch's keys, values and rows.
  void AddMoves(std::span<const StepTimes> steps, SweepLoad& load) const;
  double Stretch(const SweepLoad& load);
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
  const SweepTiming timing_;
  std::map<SweepKind, double> stretches_;
};

}  // namespace nightshift
