// SweepTiming: how long a sweep takes: its steps, waits and rings in virtual time, with the
// durations of a machine's rates. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/model/pack.h"
#include "engine/policy/model_work.h"
#include "engine/policy/sweep_costs.h"
#include "engine/schedule/sweep_steps.h"
#include "engine/schedule/virtual_lanes.h"

namespace nightshift {

// The work of sweeps with weights where the plan has them. Of more than 8192 streamed shards, or of
// so many that a sweep's batches would use them more than 65536 times, neighbours of one layer are
// one transfer.
ModelWork WorkOfPlan(const PackManifest& manifest, const MemoryPlan& plan,
                     const EngineOptions& options);

// What a sweep asks of the lanes and in how many batches, to within a share of it. Sweeps of one
// kind take in proportion to their busiest lane what one of them takes. `bound` is the time of the
// sweep's busiest lane.
using SweepKind = std::array<int64_t, kNumLanes + 1>;
SweepKind KindOf(const LaneSeconds& lanes, double bound, size_t num_batches, double share);

class SweepTiming {
 public:
  // Both outlive it; `costs` are of the plan's work.
  SweepTiming(const MemoryPlan& plan, const SweepCosts& costs) : plan_(plan), costs_(costs) {}

  // Of the last of three equal sweeps in a row, so that what is read ahead for it in the one before
  // counts.
  double Seconds(const SweepLoad& load) const;
  // Steps that are run to find that out, about.
  double NumSteps(const SweepLoad& load) const;

 private:
  StreamShape ShapeOfStream() const;
  // Returns when the step ends.
  int64_t Run(const Step& step, const SweepLoad& load, ComputeClock& clock,
              VirtualLanes& lanes) const;
  double TransferSeconds(const Step& step, const SweepLoad& load) const;

  const MemoryPlan& plan_;
  const SweepCosts& costs_;
};

}  // namespace nightshift
