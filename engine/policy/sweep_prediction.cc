#include "engine/policy/sweep_prediction.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/model/forward.h"
#include "engine/policy/discrete_form.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::StatusOr<std::unique_ptr<SweepPredictor>> SweepPredictor::Create(
    const PackManifest& manifest, const std::string& name, const EngineOptions& options,
    const HardwareProfile& hardware) {
  RETURN_IF_ERROR(options.Validate());
  RETURN_IF_ERROR(ValidateHardwareProfile(hardware));
  HardwareProfile machine =
      options.tiers.unified_memory() ? hardware : DiscreteForm(hardware, options.tiers);
  ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(options, manifest, name));
  return std::unique_ptr<SweepPredictor>(
      new SweepPredictor(manifest, options, std::move(machine), std::move(plan)));
}

SweepPredictor::SweepPredictor(const PackManifest& manifest, const EngineOptions& options,
                               HardwareProfile hardware, MemoryPlan plan)
    : config_(manifest.config),
      options_(options),
      hardware_(std::move(hardware)),
      plan_(std::move(plan)),
      rates_(hardware_, options.compute_type),
      // No shards are joined: nothing here is run step by step.
      work_(WorkOf(manifest, plan_.weights, options.compute_type, SIZE_MAX, 0)),
      costs_({.config = config_,
              .work = work_,
              .kv = KvLayoutOf(config_, options.compute_type),
              .unified_memory = options.tiers.unified_memory(),
              .compute_seconds_per_read_byte = 0.0},
             rates_) {}

double SweepPredictor::HostShare() const {
  const KvPages& pages = plan_.kv_pages;
  return options_.tiers.host_attention && pages.total() > 0
             ? static_cast<double>(pages.host + pages.disk) / static_cast<double>(pages.total())
             : 0.0;
}

LaneSeconds SweepPredictor::Future(std::span<const ComputedSpan> spans,
                                   int64_t sampled_tokens) const {
  SweepLoad load;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    load.shape.slides.push_back(IsSliding(config_, layer));
    load.shape.experts_together.push_back(false);
  }
  int64_t batch = -1;
  for (const ComputedSpan& span : spans) {
    if (load.batches.empty() || span.batch != batch) {
      load.batches.emplace_back();
      batch = span.batch;
    }
    BatchLoad& into = load.batches.back();
    const LoadByKind loads =
        costs_.LoadOf({.first_position = span.first_position, .num_tokens = span.num_tokens});
    const double on_host = span.num_tokens == 1 ? HostShare() : 0.0;
    into.rows += static_cast<double>(span.num_tokens);
    load.rows += static_cast<double>(span.num_tokens);
    for (size_t kind = 0; kind < loads.size(); ++kind) {
      into.device_attention_seconds[kind] += (1.0 - on_host) * loads[kind].device_seconds;
      into.host_attention_seconds[kind] += on_host * loads[kind].host_seconds;
    }
  }
  load.shape.batches.resize(load.batches.size());
  load.sampled_rows = static_cast<double>(sampled_tokens);
  return load.batches.empty() ? LaneSeconds{} : costs_.SecondsOf(load);
}

LaneSeconds SweepPredictor::Past(std::span<const ComputedSpan> spans, int64_t sampled_tokens,
                                 std::span<const StepTimes> steps) const {
  LaneSeconds seconds = Future(spans, sampled_tokens);
  for (const LaneId lane : {LaneId::kRead, LaneId::kUpload, LaneId::kDownload, LaneId::kWrite}) {
    seconds[static_cast<size_t>(lane)] = 0.0;
  }
  for (const StepTimes& step : steps) {
    if (step.lane != LaneId::kCompute && step.lane != LaneId::kHostAttention) {
      seconds[static_cast<size_t>(step.lane)] += TransferSeconds(step);
    }
  }
  return seconds;
}

double SweepPredictor::TransferSeconds(const StepTimes& step) const {
  const double bytes = static_cast<double>(step.bytes);
  switch (step.kind) {
    case StepKind::kReadWeights:
    case StepKind::kUploadWeights:
      return costs_.WeightSeconds(step.lane, bytes);
    case StepKind::kReadKv:
    case StepKind::kUploadKv:
    case StepKind::kDownloadKv:
    case StepKind::kWriteKv:
      return costs_.PageSeconds(step.lane, bytes);
    default:
      return costs_.RowsSeconds(step.lane, bytes);
  }
}

double SweepPredictor::Bound(const LaneSeconds& lanes) const {
  double bound = 0.0;
  for (const double seconds : lanes) {
    bound = options_.tiers.overlap ? std::max(bound, seconds) : bound + seconds;
  }
  return bound;
}

}  // namespace nightshift
