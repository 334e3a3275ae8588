#include "engine/policy/sweep_timing.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMostStreamed = 8192;
// By all batches of a sweep together.
constexpr int64_t kMostUses = 65536;
constexpr size_t kRunsOfSweep = 3;
constexpr double kNanos = 1e9;
// Lanes that work for less than this share of the sweep hold nothing up.
constexpr double kIdle = 0.01;

}  // namespace

ModelWork WorkOfPlan(const PackManifest& manifest, const MemoryPlan& plan,
                     const EngineOptions& options) {
  // A ring keeps several transfers apart.
  constexpr int64_t kPartsOfRing = 4;
  const int64_t device = plan.device_ring_bytes;
  const int64_t ring = device == 0 ? plan.host_ring_bytes : std::min(plan.host_ring_bytes, device);
  const int64_t batches =
      options.max_sweep_tokens / std::max<int64_t>(1, plan.executor.max_batch_tokens);
  const int64_t streamed = std::min(kMostStreamed, kMostUses / std::max<int64_t>(1, batches));
  return WorkOf(manifest, plan.weights, options.compute_type, static_cast<size_t>(streamed),
                ring / kPartsOfRing);
}

SweepKind KindOf(const LaneSeconds& lanes, double bound, size_t num_batches, double share) {
  SweepKind kind = {};
  const auto steps = [&](double value) {
    return static_cast<int64_t>(std::floor(std::log(value) / std::log1p(share)));
  };
  kind[kNumLanes] = steps(static_cast<double>(std::max<size_t>(num_batches, 1)));
  for (size_t i = 0; i < kNumLanes; ++i) {
    kind[i] = lanes[i] <= kIdle * bound ? INT64_MIN : steps(lanes[i]);
  }
  return kind;
}

StreamShape SweepTiming::ShapeOfStream() const {
  const SweepCosts::Model& model = costs_.model();
  return {.num_layers = model.config.num_layers,
          .shards = model.work.shards,
          .unified_memory = model.unified_memory,
          .host_ring_bytes = plan_.host_ring_bytes,
          .device_ring_bytes = plan_.device_ring_bytes,
          .num_slots = plan_.executor.num_slots(),
          .overlap = plan_.executor.overlap};
}

double SweepTiming::NumSteps(const SweepLoad& load) const {
  // About, of each layer and batch: what comes before computing and what goes after it.
  constexpr double kStepsOfUse = 8.0;
  const double batches = static_cast<double>(load.batches.size());
  return static_cast<double>(kRunsOfSweep) *
         (static_cast<double>(costs_.model().work.shards.size()) * (2.0 + batches) +
          static_cast<double>(costs_.model().config.num_layers) * batches * kStepsOfUse);
}

absl::StatusOr<double> SweepTiming::Seconds(const SweepLoad& load) const {
  SweepSteps maker(ShapeOfStream());
  std::vector<VirtualStep> steps;
  std::vector<size_t> index_of_id;
  std::array<size_t, kRunsOfSweep> last_of_run = {};
  for (size_t run = 0; run < kRunsOfSweep; ++run) {
    ComputeClock clock(costs_, load);
    for (const Step& step : maker.Next(load.shape)) {
      AddSteps(step, load, clock, index_of_id, steps);
      if (step.kind == StepKind::kCompute) {
        last_of_run[run] = steps.size() - 1;
      }
    }
  }
  ASSIGN_OR_RETURN(const VirtualRun run, RunInVirtualTime(steps, kNumLanes));
  const int64_t end = run.steps[last_of_run[kRunsOfSweep - 1]].end_ns;
  return static_cast<double>(end - run.steps[last_of_run[kRunsOfSweep - 2]].end_ns) / kNanos;
}

void SweepTiming::AddSteps(const Step& step, const SweepLoad& load, ComputeClock& clock,
                           std::vector<size_t>& index_of_id,
                           std::vector<VirtualStep>& steps) const {
  const size_t lane = static_cast<size_t>(LaneOf(step.kind));
  const auto add = [&](double seconds) -> VirtualStep& {
    return steps.emplace_back(
        VirtualStep{.lane = lane,
                    .duration_ns = static_cast<int64_t>(std::llround(seconds * kNanos)),
                    .waits = {}});
  };
  double seconds = 0.0;
  if (step.kind == StepKind::kCompute) {
    const ComputeClock::Times times = clock.Next(step);
    if (times.before_wait > 0.0) {
      add(times.before_wait);
    }
    seconds = times.after_wait;
  } else {
    seconds = TransferSeconds(step, load);
  }
  VirtualStep& added = add(seconds);
  for (const int64_t id : step.waits) {
    added.waits.push_back(index_of_id[static_cast<size_t>(id)]);
  }
  index_of_id.push_back(steps.size() - 1);
}

double SweepTiming::TransferSeconds(const Step& step, const SweepLoad& load) const {
  const LaneId lane = LaneOf(step.kind);
  const double bytes = static_cast<double>(step.bytes);
  switch (step.kind) {
    case StepKind::kReadWeights:
    case StepKind::kUploadWeights:
      return costs_.WeightSeconds(lane, bytes);
    case StepKind::kReadKv:
    case StepKind::kUploadKv:
    case StepKind::kDownloadKv:
    case StepKind::kWriteKv:
      return costs_.PageSeconds(lane, bytes);
    case StepKind::kHostAttention: {
      const size_t kind = load.shape.slides[static_cast<size_t>(step.layer)] ? 1 : 0;
      return load.batches[static_cast<size_t>(step.batch)].host_attention_seconds[kind];
    }
    default:
      return costs_.RowsSeconds(lane, bytes);
  }
}

}  // namespace nightshift
