#include "engine/policy/sweep_timing.h"

#include <algorithm>
#include <cmath>

namespace nightshift {
namespace {

constexpr int64_t kMostStreamed = 8192;
// By all batches of a sweep together.
constexpr int64_t kMostUses = 65536;
// A ring keeps several transfers apart. Those of several batches, which share what a ring brings
// over many steps, may be joined beyond that; the ring is then taken for larger than it is.
constexpr int64_t kPartsOfRing = 4;
constexpr size_t kRunsOfSweep = 3;
constexpr double kNanos = 1e9;
// Lanes that work for less than this share of the sweep hold nothing up.
constexpr double kIdle = 0.01;

}  // namespace

ModelWork WorkOfPlan(const PackManifest& manifest, const MemoryPlan& plan,
                     const EngineOptions& options) {
  const int64_t device = plan.device_ring_bytes;
  const int64_t ring = device == 0 ? plan.host_ring_bytes : std::min(plan.host_ring_bytes, device);
  // Of a sweep: cut by tokens, and by pages where those are staged.
  const int64_t batches =
      std::max(options.max_sweep_tokens / std::max<int64_t>(1, plan.executor.max_batch_tokens),
               plan.executor.kv.pages_per_slot == 0
                   ? 1
                   : plan.kv_pages.total() / plan.executor.kv.pages_per_slot);
  const int64_t streamed = std::min(kMostStreamed, kMostUses / std::max<int64_t>(1, batches));
  return WorkOf(manifest, plan.weights, options.compute_type, static_cast<size_t>(streamed),
                batches > 1 ? INT64_MAX : ring / kPartsOfRing);
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
  int64_t largest = 0;
  for (const StreamedShard& shard : model.work.shards) {
    largest = std::max(largest, shard.bytes);
  }
  return {.num_layers = model.config.num_layers,
          .shards = model.work.shards,
          .unified_memory = model.unified_memory,
          .host_ring_bytes = std::max(plan_.host_ring_bytes, kPartsOfRing * largest),
          .device_ring_bytes =
              model.unified_memory ? 0 : std::max(plan_.device_ring_bytes, kPartsOfRing * largest),
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

double SweepTiming::Seconds(const SweepLoad& load) const {
  SweepSteps maker(ShapeOfStream());
  VirtualLanes lanes(kNumLanes);
  int64_t last_ns = 0;  // of the last computation of a run
  int64_t before_ns = 0;
  for (size_t run = 0; run < kRunsOfSweep; ++run) {
    before_ns = last_ns;
    ComputeClock clock(costs_, load);
    for (const Step& step : maker.Next(load.shape)) {
      const int64_t end_ns = Run(step, load, clock, lanes);
      last_ns = step.kind == StepKind::kCompute ? end_ns : last_ns;
    }
  }
  return static_cast<double>(last_ns - before_ns) / kNanos;
}

int64_t SweepTiming::Run(const Step& step, const SweepLoad& load, ComputeClock& clock,
                         VirtualLanes& lanes) const {
  const size_t lane = static_cast<size_t>(LaneOf(step.kind));
  const auto nanos = [](double seconds) {
    return static_cast<int64_t>(std::llround(seconds * kNanos));
  };
  if (step.kind != StepKind::kCompute) {
    return lanes.Run(lane, nanos(TransferSeconds(step, load)), step.waits).end_ns;
  }
  const ComputeClock::Times times = clock.Next(step);
  lanes.Work(lane, nanos(times.before_wait));
  return lanes.Run(lane, nanos(times.after_wait), step.waits).end_ns;
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
