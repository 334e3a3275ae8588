#include "engine/policy/sweep_prediction.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/model/forward.h"
#include "engine/policy/discrete_form.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Sweeps that ask the same of every lane to within so much take as long for it.
constexpr double kSame = 0.05;
// Kinds of sweeps that are kept.
constexpr size_t kMostKinds = 4096;

}  // namespace

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
      work_(WorkOfPlan(manifest, plan_, options)),
      costs_({.config = config_,
              .work = work_,
              .kv = KvLayoutOf(config_, options.compute_type, options.kv_type),
              .sparse_attention = options.sparse_attention,
              .unified_memory = options.tiers.unified_memory(),
              .compute_seconds_per_read_byte = 0.0},
             rates_),
      timing_(plan_, costs_) {}

double SweepPredictor::HostShare() const {
  const KvPages& pages = plan_.kv_pages;
  return options_.tiers.host_attention && pages.total() > 0
             ? static_cast<double>(pages.host + pages.disk) / static_cast<double>(pages.total())
             : 0.0;
}

SweepLoad SweepPredictor::LoadOf(std::span<const ComputedSpan> spans,
                                 int64_t sampled_tokens) const {
  SweepLoad load;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    load.shape.slides.push_back(IsSliding(config_, layer));
    load.shape.experts_together.push_back(HasExperts(config_, layer) &&
                                          plan_.executor.activations.all_on_device());
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
  return load;
}

void SweepPredictor::AddMoves(std::span<const StepTimes> steps, SweepLoad& load) const {
  for (const StepTimes& step : steps) {
    const bool is_of_batch = step.batch >= 0 && step.layer >= 0 &&
                             step.batch < static_cast<int64_t>(load.batches.size()) &&
                             step.layer < config_.num_layers;
    if (!is_of_batch) {
      continue;
    }
    BatchShape& batch = load.shape.batches[static_cast<size_t>(step.batch)];
    KvMoves& kv = batch.kv[IsSliding(config_, step.layer) ? 1 : 0];
    const auto take = [&](int64_t& bytes) { bytes = std::max(bytes, step.bytes); };
    switch (step.kind) {
      case StepKind::kReadKv:
        take(kv.read_bytes);
        break;
      case StepKind::kUploadKv:
        take(kv.upload_bytes);
        break;
      case StepKind::kDownloadKv:
        take(kv.download_bytes);
        break;
      case StepKind::kWriteKv:
        take(kv.write_bytes);
        break;
      case StepKind::kReadActivations:
      case StepKind::kWriteActivations:
        batch.activations = Tier::kDisk;
        take(batch.activation_bytes);
        break;
      case StepKind::kUploadActivations:
      case StepKind::kDownloadActivations:
        batch.activations = std::max(batch.activations, Tier::kHost);
        take(batch.activation_bytes);
        break;
      case StepKind::kDownloadQueries:
        take(batch.query_bytes);
        break;
      case StepKind::kUploadMixed:
        take(batch.mixed_bytes);
        break;
      default:
        break;
    }
  }
}

double SweepPredictor::Stretch(const SweepLoad& load) {
  const LaneSeconds lanes = costs_.SecondsOf(load);
  const double bound = Bound(lanes);
  if (bound <= 0.0) {
    return 1.0;
  }
  if (stretches_.size() >= kMostKinds) {
    stretches_.clear();
  }
  const auto [known, is_new] =
      stretches_.try_emplace(KindOf(lanes, bound, load.batches.size(), kSame), 1.0);
  if (is_new) {
    known->second = std::max(1.0, timing_.Seconds(load) / bound);
  }
  return known->second;
}

PredictedSweep SweepPredictor::Future(std::span<const ComputedSpan> spans, int64_t sampled_tokens) {
  const SweepLoad load = LoadOf(spans, sampled_tokens);
  return load.batches.empty()
             ? PredictedSweep{}
             : PredictedSweep{.lanes = costs_.SecondsOf(load), .stretch = Stretch(load)};
}

PredictedSweep SweepPredictor::Past(std::span<const ComputedSpan> spans, int64_t sampled_tokens,
                                    std::span<const StepTimes> steps) {
  SweepLoad load = LoadOf(spans, sampled_tokens);
  AddMoves(steps, load);
  PredictedSweep sweep;
  if (!load.batches.empty()) {
    sweep = {.lanes = costs_.SecondsOf(load), .stretch = Stretch(load)};
  }
  LaneSeconds& seconds = sweep.lanes;
  for (const LaneId lane : {LaneId::kRead, LaneId::kUpload, LaneId::kDownload, LaneId::kWrite}) {
    seconds[static_cast<size_t>(lane)] = 0.0;
  }
  for (const StepTimes& step : steps) {
    if (step.lane != LaneId::kCompute && step.lane != LaneId::kHostAttention) {
      seconds[static_cast<size_t>(step.lane)] += TransferSeconds(step);
    }
  }
  return sweep;
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
