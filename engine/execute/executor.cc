#include "engine/execute/executor.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "engine/model/scratch.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

int64_t ScratchBytes(const ModelConfig& config, const ExecutorLimits& limits) {
  const int64_t layer = Forward::ScratchFloats(config, limits.max_batch_tokens);
  const int64_t experts_rows =
      limits.activations.all_on_device() ? limits.max_sweep_tokens : limits.max_batch_tokens;
  const int64_t experts =
      ExpertFeedForward::ScratchFloats(config, experts_rows, limits.max_batch_tokens);
  return std::max({layer, experts, OutputHead::ScratchFloats(config)}) * FloatBytes(DType::kF32);
}

ActivationStoreOptions ActivationOptions(const ModelConfig& config, const ExecutorLimits& limits) {
  return {.rows = limits.activations,
          .width = config.model_width,
          .max_batch_rows = limits.max_batch_tokens,
          .max_batches = limits.max_batches,
          .num_slots = limits.num_slots(),
          .unified_memory = limits.kv.unified_memory};
}

int64_t HostAttentionBytes(const ModelConfig& config, const ExecutorLimits& limits) {
  return limits.kv.host_attention
             ? HostAttention::Bytes(config, limits.max_batch_tokens, limits.num_slots())
             : 0;
}

StreamShape WithLimits(StreamShape shape, const ModelConfig& config, const ExecutorLimits& limits) {
  shape.num_layers = config.num_layers;
  shape.num_slots = limits.num_slots();
  shape.overlap = limits.overlap;
  shape.unified_memory = limits.kv.unified_memory;
  return shape;
}

}  // namespace

ScoredRows ScoredRowsOf(const Span& span, const Sequence& sequence) {
  if (!sequence.sampling.prompt_logprobs.has_value()) {
    return {};
  }
  // The row at a position tells of the token behind it.
  const auto row_of = [&](int64_t token) {
    return std::clamp<int64_t>(token - 1 - span.first_position, 0, span.num_tokens);
  };
  const int64_t first = row_of(sequence.sampling.scored_from);
  const int64_t end = row_of(sequence.prompt_tokens);
  const bool has_last = end > first && end > row_of(sequence.prompt_tokens - 1);
  const auto rivals = static_cast<int64_t>(sequence.sampling.last_token_rivals.size());
  return {.first = first, .count = end - first, .rivals = has_last ? rivals : 0};
}

int64_t Executor::DeviceBytes(const ModelConfig& config, const KvPageLayout& layout,
                              const ExecutorLimits& limits) {
  return ScratchBytes(config, limits) +
         ActivationStore::DeviceBytes(ActivationOptions(config, limits)) +
         KvStaging::DeviceBytes(layout, limits.kv) + HostAttentionBytes(config, limits);
}

int64_t Executor::HostBytes(const ModelConfig& config, const KvPageLayout& layout,
                            const ExecutorLimits& limits) {
  return ActivationStore::HostBytes(ActivationOptions(config, limits)) +
         KvStaging::HostBytes(layout, limits.kv) + HostAttentionBytes(config, limits);
}

int64_t Executor::DiskBytes(const ModelConfig& config, const ExecutorLimits& limits) {
  return ActivationStore::DiskBytes(ActivationOptions(config, limits));
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(ExecutorParts parts,
                                                           const ExecutorLimits& limits) {
  std::unique_ptr<Executor> executor(new Executor(std::move(parts), limits));
  const ModelConfig& config = executor->config_;
  Pool& device_pool = executor->parts_.device_pool;
  Pool& host_pool = executor->parts_.host_pool;
  ASSIGN_OR_RETURN(executor->memory_, device_pool.Reserve(ScratchBytes(config, limits), "scratch"));
  const std::span<std::byte> bytes = executor->memory_.bytes();
  executor->scratch_ = {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  ASSIGN_OR_RETURN(executor->activations_,
                   ActivationStore::Create(ActivationOptions(config, limits),
                                           executor->parts_.spill_folder, device_pool, host_pool));
  ASSIGN_OR_RETURN(executor->kv_staging_,
                   KvStaging::Create(executor->parts_.cache, limits.kv, device_pool, host_pool));
  if (limits.kv.host_attention) {
    ASSIGN_OR_RETURN(executor->host_attention_,
                     HostAttention::Create(config, limits.max_batch_tokens, limits.num_slots(),
                                           executor->parts_.device, executor->parts_.compute_type,
                                           device_pool, host_pool));
  }
  if (limits.kv.has_disk || limits.activations.disk > 0) {
    DiskQueueOptions disk = executor->parts_.disk;
    for (const DiskFile* file : {executor->parts_.cache.file(), executor->activations_->file()}) {
      if (file != nullptr) {
        disk.fds.push_back(file->fd());
      }
    }
    for (const std::span<std::byte> memory :
         {executor->kv_staging_->transfer_memory(), executor->activations_->transfer_memory()}) {
      constexpr size_t kMostPinnedBytes = size_t{1} << 30;
      if (!memory.empty() && memory.size() <= kMostPinnedBytes) {
        disk.memory.push_back(memory);
      }
    }
    ASSIGN_OR_RETURN(executor->disk_, DiskQueue::Create(disk));
  }
  return executor;
}

Executor::Executor(ExecutorParts parts, const ExecutorLimits& limits)
    : parts_(std::move(parts)),
      config_(parts_.config),
      weights_(parts_.weights),
      ops_(parts_.device.ops(parts_.compute_type)),
      limits_(limits),
      forward_(config_, parts_.cache.layout(), ops_, this, parts_.sparse_attention),
      experts_(config_, limits.max_batch_tokens, ops_, this),
      head_(config_, weights_, this, forward_, ops_),
      steps_maker_(WithLimits(parts_.stream_shape, config_, limits)),
      lanes_(clock_) {}

absl::StatusOr<SweepOutput> Executor::Run(const SweepSchedule& schedule, Sequences sequences) {
  std::vector<HeadRow> rows = RowsToScore(schedule, sequences);
  const size_t num_scored = rows.size();
  for (const SampledRow& sampled : schedule.sampled) {
    Sequence& sequence = *sequences[sampled.request];
    if (sequence.sampling.max_output_tokens > 0) {
      rows.push_back({.request_id = sequence.id,
                      .row = sampled.row,
                      .position = sequence.known_tokens(),
                      .sampling = &sequence.sampling,
                      .adjustments = sequence.adjuster.Next(),
                      .known_token = std::nullopt});
    }
  }
  absl::StatusOr<std::vector<TokenLogprob>> sampled_tokens;
  ASSIGN_OR_RETURN(
      SweepOutput result, RunSweep(schedule, sequences, [&] {
        sampled_tokens = head_.Sample(
            [this](std::span<const int64_t> wanted, MatrixView out) { GatherRows(wanted, out); },
            rows, scratch_);
      }));
  ASSIGN_OR_RETURN(std::vector<TokenLogprob> tokens, std::move(sampled_tokens));
  auto next = tokens.begin() + static_cast<std::ptrdiff_t>(num_scored);
  for (const SampledRow& sampled : schedule.sampled) {
    const bool wanted = sequences[sampled.request]->sampling.max_output_tokens > 0;
    result.sampled.push_back(wanted ? std::optional(std::move(*next++)) : std::nullopt);
  }
  tokens.resize(num_scored);
  result.scored = std::move(tokens);
  return result;
}

std::vector<HeadRow> Executor::RowsToScore(const SweepSchedule& schedule,
                                           Sequences sequences) const {
  std::vector<HeadRow> rows;
  for (const Span& span : schedule.spans) {
    const Sequence& sequence = *sequences[span.request];
    const ScoredRows scored = ScoredRowsOf(span, sequence);
    const auto add = [&](int64_t row, int32_t token) {
      rows.push_back({.request_id = sequence.id,
                      .row = span.first_row + row,
                      .position = span.first_position + row + 1,
                      .sampling = &sequence.sampling,
                      .adjustments = {},
                      .known_token = token});
    };
    const int64_t end = scored.first + scored.count;
    for (int64_t i = scored.first; i < end; ++i) {
      add(i, sequence.tokens[static_cast<size_t>(span.first_position + i + 1)]);
    }
    for (int64_t i = 0; i < scored.rivals; ++i) {
      add(end - 1, sequence.sampling.last_token_rivals[static_cast<size_t>(i)]);
    }
  }
  return rows;
}

absl::StatusOr<std::vector<float>> Executor::ForwardLogits(const SweepSchedule& schedule,
                                                           Sequences sequences) {
  std::vector<int64_t> rows(static_cast<size_t>(schedule.num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits;
  RETURN_IF_ERROR(RunSweep(schedule, sequences, [&] {
                    logits = head_.Logits([this](std::span<const int64_t> wanted,
                                                 MatrixView out) { GatherRows(wanted, out); },
                                          rows, scratch_);
                  }).status());
  return logits;
}

absl::StatusOr<SweepOutput> Executor::RunSweep(const SweepSchedule& schedule, Sequences sequences,
                                               const std::function<void()>& head) {
  CHECK_LE(schedule.num_rows, limits_.max_sweep_tokens);
  RETURN_IF_ERROR(fault_);
  const int64_t begin_us = clock_.MonotonicMicros();
  schedule_ = &schedule;
  sequences_ = sequences;
  GatherTokens();
  activations_->Assign(schedule.batches);
  places_.erase(places_.begin(), places_.lower_bound(steps_maker_.first_position()));
  steps_ = steps_maker_.Next(ShapeOf(schedule, sequences));
  cursor_ = 0;
  IssueUntilComputation();
  while (cursor_ < steps_.size()) {
    RunCall(head);
  }
  SweepOutput output;
  output.steps = lanes_.EndSweep();
  NoteFailure();
  RETURN_IF_ERROR(fault_);
  output.times = Summarise(output.steps, begin_us, clock_.MonotonicMicros());
  return output;
}

SweepShape Executor::ShapeOf(const SweepSchedule& schedule, Sequences sequences) const {
  SweepShape shape;
  std::array<std::optional<int64_t>, 2> layer_of_kind;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const bool slides = IsSliding(config_, layer);
    shape.slides.push_back(slides);
    layer_of_kind[slides ? 1 : 0] = layer;
    shape.experts_together.push_back(HasExperts(config_, layer) &&
                                     limits_.activations.all_on_device());
  }
  for (size_t i = 0; i < schedule.batches.size(); ++i) {
    BatchShape& batch = shape.batches.emplace_back();
    batch.activations = activations_->TierOf(i);
    batch.activation_bytes = activations_->BatchBytes(i);
    for (size_t kind = 0; kind < 2 && limits_.kv.pages_per_slot > 0; ++kind) {
      if (!layer_of_kind[kind].has_value()) {
        continue;
      }
      const StagedLayer staged =
          kv_staging_->Stage(*layer_of_kind[kind], 0, schedule.batches[i], sequences);
      batch.kv[kind] = staged.moves();
      if (!staged.host_spans.empty()) {
        batch.query_bytes = HostAttention::QueryBytes(config_, staged.host_spans);
        batch.mixed_bytes = HostAttention::MixedBytes(config_, staged.host_spans);
      }
    }
  }
  return shape;
}

void Executor::GatherTokens() {
  ids_.clear();
  positions_.clear();
  for (const Span& span : schedule_->spans) {
    const auto first = sequences_[span.request]->tokens.begin() + span.first_position;
    ids_.insert(ids_.end(), first, first + span.num_tokens);
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      positions_.push_back(static_cast<int32_t>(span.first_position + i));
    }
  }
}

void Executor::GatherRows(std::span<const int64_t> rows, MatrixView out) {
  if (limits_.activations.all_on_device()) {
    ops_.GatherRows(activations_->AllRows(schedule_->num_rows), rows, out);
    return;
  }
  size_t first = 0;
  while (first < rows.size()) {
    size_t end = first + 1;
    while (end < rows.size() && rows[end] > rows[end - 1]) {
      ++end;
    }
    GatherAscendingRows(rows.subspan(first, end - first),
                        out.Rows(static_cast<int64_t>(first), static_cast<int64_t>(end - first)));
    first = end;
  }
}

// Batch by batch, each brought into the first slot where it does not lie on the device.
void Executor::GatherAscendingRows(std::span<const int64_t> rows, MatrixView out) {
  size_t next = 0;
  for (size_t i = 0; next < rows.size(); ++i) {
    CHECK_LT(i, schedule_->batches.size());
    const Batch& batch = schedule_->batches[i];
    std::vector<int64_t> wanted;
    while (next + wanted.size() < rows.size() &&
           rows[next + wanted.size()] < batch.first_row + batch.num_rows) {
      wanted.push_back(rows[next + wanted.size()] - batch.first_row);
    }
    if (wanted.empty()) {
      continue;
    }
    BringRows(i);
    ops_.GatherRows(activations_->Rows(i, 0), wanted,
                    out.Rows(static_cast<int64_t>(next), static_cast<int64_t>(wanted.size())));
    next += wanted.size();
  }
}

void Executor::BringRows(size_t batch) {
  const Tier tier = activations_->TierOf(batch);
  const bool unified = parts_.device.unified_memory();
  if (tier == Tier::kDisk) {
    const DiskCopy copy{activations_->DiskOffset(batch), unified ? activations_->OnDevice(batch, 0)
                                                                 : activations_->OnHost(batch, 0)};
    fault_.Update(MoveOnDisk(TransferKind::kRead, *activations_->file(), {&copy, 1}));
  }
  if (tier != Tier::kDevice && !unified) {
    fault_.Update(UploadNow([&] {
      return parts_.device.Upload(activations_->OnHost(batch, 0), activations_->OnDevice(batch, 0));
    }));
  }
}

void Executor::IssueUntilComputation() {
  while (cursor_ < steps_.size() && steps_[cursor_].kind != StepKind::kCompute) {
    Issue(steps_[cursor_]);
    ++cursor_;
  }
}

void Executor::Issue(const Step& step) {
  switch (step.kind) {
    case StepKind::kReadWeights:
    case StepKind::kUploadWeights:
      IssueWeights(step);
      break;
    case StepKind::kReadKv:
    case StepKind::kUploadKv:
    case StepKind::kDownloadKv:
    case StepKind::kWriteKv:
      IssueKv(step);
      break;
    case StepKind::kReadActivations:
    case StepKind::kUploadActivations:
    case StepKind::kDownloadActivations:
    case StepKind::kWriteActivations:
      IssueActivations(step);
      break;
    case StepKind::kDownloadQueries:
    case StepKind::kHostAttention:
    case StepKind::kUploadMixed:
      IssueHostAttention(step);
      break;
    case StepKind::kCompute:
      CHECK(false);
  }
}

void Executor::IssueWeights(const Step& step) {
  const size_t index = IndexAt(step.position);
  const int64_t offset = step.offset;
  if (step.kind == StepKind::kReadWeights) {
    (parts_.device.unified_memory() ? places_ : host_places_)[step.position] = offset;
    lanes_.IssueTransfer(
        step, [this, index, offset](Fence* fence) { parts_.stream->Read(index, offset, fence); });
    return;
  }
  places_[step.position] = offset;
  const auto host_place = host_places_.extract(step.position);
  const int64_t host_offset = host_place.empty() ? 0 : host_place.mapped();
  lanes_.Issue(step, [this, index, host_offset, offset] {
    return parts_.stream->Upload(index, host_offset, offset);
  });
}

void Executor::IssueKv(const Step& step) {
  const std::shared_ptr<const StagedLayer> staged = Staged(step.layer, step.batch, step.slot);
  const DiskFile* file = parts_.cache.file();
  switch (step.kind) {
    case StepKind::kReadKv:
      lanes_.Issue(step,
                   [=, this] { return MoveOnDisk(TransferKind::kRead, *file, staged->reads); });
      break;
    case StepKind::kWriteKv:
      lanes_.Issue(step,
                   [=, this] { return MoveOnDisk(TransferKind::kWrite, *file, staged->writes); });
      break;
    default: {
      const bool up = step.kind == StepKind::kUploadKv;
      lanes_.Issue(step, [=, this]() -> absl::Status {
        for (const MemoryCopy& copy : up ? staged->uploads : staged->downloads) {
          const std::span<const std::byte> from(copy.from, copy.bytes);
          const std::span<std::byte> to(copy.to, copy.bytes);
          RETURN_IF_ERROR(up ? parts_.device.Upload(from, to) : parts_.device.Download(from, to));
        }
        return absl::OkStatus();
      });
    }
  }
}

void Executor::IssueActivations(const Step& step) {
  const size_t batch = static_cast<size_t>(step.batch);
  const std::span<std::byte> device = activations_->OnDevice(batch, step.slot);
  const std::span<std::byte> host =
      parts_.device.unified_memory() ? device : activations_->OnHost(batch, step.slot);
  const DiskCopy copy{activations_->DiskOffset(batch), host};
  switch (step.kind) {
    case StepKind::kReadActivations:
    case StepKind::kWriteActivations: {
      const TransferKind kind =
          step.kind == StepKind::kReadActivations ? TransferKind::kRead : TransferKind::kWrite;
      lanes_.Issue(step, [=, this] { return MoveOnDisk(kind, *activations_->file(), {&copy, 1}); });
      break;
    }
    case StepKind::kUploadActivations:
      lanes_.Issue(step, [=, this] { return parts_.device.Upload(host, device); });
      break;
    default:
      lanes_.Issue(step, [=, this] { return parts_.device.Download(device, host); });
  }
}

void Executor::IssueHostAttention(const Step& step) {
  const std::shared_ptr<const StagedLayer> staged = Staged(step.layer, step.batch, step.slot);
  const LayerBatch batch = BatchAt(step, staged->host_spans);
  const int64_t rows = schedule_->batches[static_cast<size_t>(step.batch)].num_rows;
  const size_t slot = step.slot;
  // The works keep what the spans of `batch` point to.
  switch (step.kind) {
    case StepKind::kDownloadQueries:
      lanes_.Issue(step, [this, staged, batch, rows, slot] {
        return host_attention_->DownloadQueries(batch, rows, slot);
      });
      break;
    case StepKind::kHostAttention:
      lanes_.Issue(step, [this, staged, batch, rows, slot] {
        return host_attention_->Attend(forward_, batch, rows, slot);
      });
      break;
    default:
      lanes_.Issue(step, [this, staged, batch, rows, slot] {
        return host_attention_->UploadMixed(batch, rows, slot);
      });
  }
}

void Executor::RunCall(const std::function<void()>& head) {
  const Step call = steps_[cursor_];
  BeginPiece();
  if (fault_.ok()) {
    Compute(call, head);
  } else {
    while (!steps_[cursor_].is_last_piece) {
      EndPiece();
      BeginPiece();
    }
  }
  if (!piece_has_begun_) {
    BeginPiece();
  }
  CHECK(steps_[cursor_].is_last_piece);
  EndPiece();
  if (call.part != LayerPart::kInputs) {
    // Its last steps are with their lanes.
    staged_.erase({call.layer, call.batch});
  }
}

void Executor::BeginPiece() {
  lanes_.Begin(steps_[cursor_]);
  NoteFailure();
  piece_has_begun_ = true;
}

void Executor::NoteFailure() {
  if (!fault_.ok() || !lanes_.failure().has_value()) {
    return;
  }
  const auto& [step, status] = *lanes_.failure();
  if (step.kind == StepKind::kReadWeights || step.kind == StepKind::kUploadWeights) {
    fault_ = parts_.stream->Name(IndexAt(step.position), status);
  } else {
    fault_ =
        absl::Status(status.code(), absl::StrCat(StepKindName(step.kind), " of layer ", step.layer,
                                                 ", batch ", step.batch, ": ", status.message()));
  }
}

size_t Executor::IndexAt(int64_t position) const {
  return static_cast<size_t>(position) % parts_.stream->num_shards();
}

// What the piece reads may be overwritten from here on: ops must have ended.
void Executor::EndPiece() {
  fault_.Update(parts_.device.Wait());
  lanes_.End(steps_[cursor_], fault_);
  piece_has_begun_ = false;
  ++cursor_;
  IssueUntilComputation();
}

void Executor::Compute(const Step& call, const std::function<void()>& head) {
  if (call.layer == config_.num_layers) {
    head();
    return;
  }
  if (call.batch == kAllBatches) {
    experts_.Run(weights_.layers[static_cast<size_t>(call.layer)], scratch_,
                 activations_->AllRows(schedule_->num_rows));
    return;
  }
  if (call.layer != kEmbedding) {
    ComputeLayer(call);
    return;
  }
  const Batch& batch = schedule_->batches[static_cast<size_t>(call.batch)];
  const size_t first = static_cast<size_t>(batch.first_row);
  const size_t count = static_cast<size_t>(batch.num_rows);
  forward_.Embed(weights_, std::span(ids_).subspan(first, count),
                 std::span(positions_).subspan(first, count), scratch_,
                 activations_->Rows(static_cast<size_t>(call.batch), call.slot));
}

void Executor::ComputeLayer(const Step& call) {
  const std::shared_ptr<const StagedLayer> staged = Staged(call.layer, call.batch, call.slot);
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(call.layer)];
  const LayerBatch batch = BatchAt(call, staged->device_spans);
  const MatrixView hidden = activations_->Rows(static_cast<size_t>(call.batch), call.slot);
  if (call.part == LayerPart::kInputs) {
    const AttentionRows rows = host_attention_->OnDevice(hidden.rows, call.slot);
    forward_.BeginLayer(weights, batch, scratch_, hidden, rows);
    forward_.Mix(batch, rows, ops_);
    return;
  }
  if (call.part == LayerPart::kOutputs) {
    forward_.FinishLayer(weights, host_attention_->OnDevice(hidden.rows, call.slot).mixed, scratch_,
                         hidden);
  } else {
    forward_.Layer(weights, batch, scratch_, hidden);
  }
  if (HasExperts(config_, call.layer) && !limits_.activations.all_on_device()) {
    experts_.Run(weights, scratch_, hidden);
  }
}

LayerBatch Executor::BatchAt(const Step& step, std::span<const AttentionSpan> spans) const {
  const Batch& batch = schedule_->batches[static_cast<size_t>(step.batch)];
  return {.slides = IsSliding(config_, step.layer),
          .positions = std::span(positions_)
                           .subspan(static_cast<size_t>(batch.first_row),
                                    static_cast<size_t>(batch.num_rows)),
          .spans = spans};
}

std::shared_ptr<const StagedLayer> Executor::Staged(int64_t layer, int64_t batch, size_t slot) {
  std::shared_ptr<const StagedLayer>& staged = staged_[{layer, batch}];
  if (staged == nullptr) {
    staged = std::make_shared<const StagedLayer>(kv_staging_->Stage(
        layer, slot, schedule_->batches[static_cast<size_t>(batch)], sequences_));
  }
  return staged;
}

absl::Status Executor::MoveOnDisk(TransferKind kind, const DiskFile& file,
                                  std::span<const DiskCopy> copies) {
  std::deque<Fence> fences;
  for (const DiskCopy& copy : copies) {
    disk_->Submit({.kind = kind,
                   .file = &file,
                   .offset = copy.offset,
                   .memory = copy.memory,
                   .fence = &fences.emplace_back()});
  }
  absl::Status status;
  for (Fence& fence : fences) {
    status.Update(fence.Wait());
  }
  return status;
}

WeightShardView Executor::Acquire(ShardIndex expected) {
  if (!piece_has_begun_) {
    BeginPiece();
  }
  const Step& piece = steps_[cursor_];
  CHECK_GE(piece.position, 0);
  const size_t index = IndexAt(piece.position);
  CHECK(parts_.stream->shard(index) == expected);
  return parts_.stream->View(index, places_.at(piece.position));
}

void Executor::Release() {
  EndPiece();
}

void Executor::ReadAside(std::span<const ShardIndex> shards,
                         const std::function<void(const WeightShardView&)>& use) {
  const auto upload = [this](std::function<absl::Status()> copy) {
    return UploadNow(std::move(copy));
  };
  fault_.Update(parts_.stream->ReadAside(shards, upload, use));
}

void Executor::BeginExperts(const ExpertDemand& demand) {
  if (parts_.stream != nullptr) {
    parts_.stream->BeginExperts(demand);
  }
}

WeightShardView Executor::AcquireOfExpert(ShardIndex expected) {
  const auto upload = [this](std::function<absl::Status()> copy) {
    return UploadNow(std::move(copy));
  };
  const WeightStream::ExpertShard shard = parts_.stream->AcquireOfExpert(expected, upload);
  fault_.Update(shard.status);
  return shard.view;
}

void Executor::ReleaseOfExpert() {
  parts_.stream->ReleaseOfExpert();
}

absl::Status Executor::UploadNow(std::function<absl::Status()> copy) {
  const absl::Status computed = parts_.device.Wait();
  return computed.ok() ? lanes_.RunNow(LaneId::kUpload, std::move(copy)) : computed;
}

}  // namespace nightshift
