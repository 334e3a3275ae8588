#include "engine/policy/sweep_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/memory/kv_layers.h"
#include "engine/model/scratch.h"
#include "kernels/base/check.h"

namespace nightshift {
namespace {

// Rows that go through the head together, and what its walk is cut into (output_head.cc).
constexpr double kHeadGroupRows = 256.0;

double Count(int64_t value) {
  return static_cast<double>(value);
}

// Pairs of a query and a key that it sees, of queries [first, first + count).
double VisiblePairs(double first, double count, double window) {
  if (window <= 0.0 || first + count <= window) {
    return count * first + count * (count + 1.0) / 2.0;
  }
  const double growing = std::max(0.0, window - first);  // queries that see less than a window
  return growing * first + growing * (growing + 1.0) / 2.0 + (count - growing) * window;
}

}  // namespace

double HitShare(double shards, double rows) {
  return shards < 2.0 ? 1.0 : 1.0 - std::pow(1.0 - 1.0 / shards, rows);
}

void AttentionLoad::Add(const AttentionLoad& other, double count) {
  device_seconds += count * other.device_seconds;
  host_seconds += count * other.host_seconds;
  earlier_pages += count * other.earlier_pages;
  touched_pages += count * other.touched_pages;
  host_rows += count * other.host_rows;
}

void SweepCosts::Totals::Add(const PartWork& part) {
  flops_per_row += part.resident_flops_per_row;
  row_bytes += part.row_bytes;
  for (const StreamedWork& piece : part.pieces) {
    flops_per_row += piece.resident_flops_per_row + piece.streamed.flops_per_row;
    unpacked_elements += piece.streamed.unpacked_elements;
    disk_bytes += piece.streamed.disk_bytes;
    pieces += piece.shards;
  }
}

SweepCosts::SweepCosts(const Model& model, const WorkRates& rates)
    : model_(model), rates_(rates), page_bytes_(Count(model.kv.page_bytes())) {
  const ModelWork& work = model.work;
  for (size_t i = 0; i < work.layers.size(); ++i) {
    layers_.Add(work.layers[i].inputs);
    layers_.Add(work.layers[i].outputs);
    num_layers_[IsSliding(model.config, static_cast<int64_t>(i)) ? 1 : 0] += 1.0;
    num_expert_layers_ += work.has_experts[i] ? 1.0 : 0.0;
  }
  head_.Add(work.head);
  for (const StreamedShard& shard : work.shards) {
    streamed_bytes_ += Count(shard.bytes);
  }
}

AttentionLoad SweepCosts::LoadOfKind(const Span& span, bool slides) const {
  const ModelConfig& config = model_.config;
  const double window = slides ? Count(config.sliding_window) : 0.0;
  const double first = Count(span.first_position);
  const double rows = Count(span.num_tokens);
  const double positions = window > 0.0 ? std::min(first + rows, window) : first + rows;
  const double elements = Count(config.num_kv_heads * config.head_width) * positions;  // of keys
  AttentionLoad load;
  if (span.num_tokens == 1) {
    WorkRates::DecodeAttention work{.head_width = config.head_width,
                                    .queries_per_kv_head = config.num_heads / config.num_kv_heads,
                                    .kv = model_.kv.dtype,
                                    .elements = (1.0 + model_.sparse_attention) * elements,
                                    .positions = positions,
                                    .on_host = false};
    load.device_seconds = rates_.DecodeAttentionSeconds(work);
    work.on_host = true;
    load.host_seconds = rates_.DecodeAttentionSeconds(work);
    load.host_rows = 1.0;
  } else {
    const double flops =
        4.0 * Count(config.num_heads * config.head_width) * VisiblePairs(first, rows, window);
    load.device_seconds = rates_.PromptAttentionSeconds(config.head_width, flops, first + rows);
    if (!rates_.AttendsTo(model_.kv.dtype, false)) {
      load.device_seconds += rates_.UnpackSeconds(model_.kv.dtype, 2.0 * elements);
    }
    load.host_seconds = load.device_seconds;
  }
  const int64_t end = span.first_position + span.num_tokens;
  const int64_t seen =
      window > 0.0
          ? std::max<int64_t>(0, span.first_position + 1 - config.sliding_window) / kPagePositions
          : 0;
  load.earlier_pages = Count(PagesFor(span.first_position) - seen);
  load.touched_pages = Count(PagesFor(end) - span.first_position / kPagePositions);
  return load;
}

LoadByKind SweepCosts::LoadOf(const Span& span) const {
  return {LoadOfKind(span, false),
          model_.config.sliding_window > 0 ? LoadOfKind(span, true) : AttentionLoad()};
}

namespace {

// Pages of one span at a layer of one kind, by tier; as KvStaging moves them.
void AddMoves(const Span& span, const FlowRequest& request, int64_t first_seen, bool on_host,
              bool unified, double page_bytes, KvMoves& moves) {
  const int64_t bytes = static_cast<int64_t>(page_bytes);
  const int64_t count = PagesFor(span.first_position + span.num_tokens);
  for (int64_t stretch = first_seen; stretch < count; ++stretch) {
    const Tier tier = request.tiers[static_cast<size_t>(stretch)];
    if (tier == Tier::kDevice || (tier == Tier::kHost && on_host)) {
      continue;
    }
    const bool has_earlier = stretch * kPagePositions < span.first_position;
    const bool has_new = (stretch + 1) * kPagePositions > span.first_position;
    const bool crosses_link = !unified && !on_host;
    if (tier == Tier::kDisk) {
      moves.read_bytes += has_earlier ? bytes : 0;
      moves.write_bytes += has_new ? bytes : 0;
    }
    moves.upload_bytes += has_earlier && crosses_link ? bytes : 0;
    moves.download_bytes += has_new && crosses_link ? bytes : 0;
  }
}

bool LiesBesideDevice(const FlowRequest& request, int64_t first_seen, int64_t count) {
  return std::all_of(request.tiers.begin() + static_cast<std::ptrdiff_t>(first_seen),
                     request.tiers.begin() + static_cast<std::ptrdiff_t>(count),
                     [](Tier tier) { return tier != Tier::kDevice; });
}

// Tiers of the batches' rows, as ActivationStore gives them.
class RowPlaces {
 public:
  RowPlaces(const ActivationRows& rows, int64_t width)
      : rows_(rows), row_bytes_(RowStride(width) * FloatBytes(DType::kF32)) {}

  void Assign(int64_t num_rows, BatchShape& batch) {
    if (rows_.all_on_device()) {
      return;
    }
    const int64_t capacity[] = {rows_.device, rows_.host, rows_.disk};
    while (tier_ + 1 < std::size(capacity) && used_ + num_rows > capacity[tier_]) {
      ++tier_;
      used_ = 0;
    }
    used_ += num_rows;
    batch.activations = static_cast<Tier>(tier_);
    batch.activation_bytes = RoundUp(num_rows * row_bytes_, kShardAlignment);
  }

 private:
  const ActivationRows rows_;
  const int64_t row_bytes_;
  size_t tier_ = 0;
  int64_t used_ = 0;
};

}  // namespace

SweepLoad SweepCosts::Load(const SweepSchedule& schedule, const std::vector<FlowRequest>& held,
                           const ExecutorLimits& limits) const {
  const ModelConfig& config = model_.config;
  SweepLoad sweep;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    sweep.shape.slides.push_back(IsSliding(config, layer));
    sweep.shape.experts_together.push_back(HasExperts(config, layer) &&
                                           limits.activations.all_on_device());
  }
  sweep.rows = Count(schedule.num_rows);
  for (const SampledRow& sampled : schedule.sampled) {
    sweep.sampled_rows += held[sampled.request].output_tokens > 0 ? 1.0 : 0.0;
  }
  RowPlaces places(limits.activations, config.model_width);
  const bool stages = limits.kv.pages_per_slot > 0;
  const int64_t float_bytes = FloatBytes(DType::kF32);
  for (const Batch& scheduled : schedule.batches) {
    BatchLoad& load = sweep.batches.emplace_back();
    BatchShape& shape = sweep.shape.batches.emplace_back();
    load.rows = Count(scheduled.num_rows);
    places.Assign(scheduled.num_rows, shape);
    int64_t host_rows = 0;
    for (const Span& span : scheduled.spans) {
      const FlowRequest& request = held[span.request];
      const LoadByKind loads = LoadOf(span);
      const int64_t count = PagesFor(span.first_position + span.num_tokens);
      for (size_t kind = 0; kind < 2; ++kind) {
        const int64_t first_seen =
            kind == 0 ? 0
                      : std::max<int64_t>(0, span.first_position + 1 - config.sliding_window) /
                            kPagePositions;
        const bool on_host = stages && limits.kv.host_attention && span.num_tokens == 1 &&
                             LiesBesideDevice(request, first_seen, count);
        (on_host ? load.host_attention_seconds : load.device_attention_seconds)[kind] +=
            on_host ? loads[kind].host_seconds : loads[kind].device_seconds;
        host_rows += kind == 0 && on_host ? 1 : 0;
        if (stages) {
          AddMoves(span, request, first_seen, on_host, model_.unified_memory, page_bytes_,
                   shape.kv[kind]);
        }
      }
    }
    const int64_t q_bytes = RowStride(config.num_heads * config.head_width) * float_bytes;
    const int64_t kv_bytes = RowStride(config.num_kv_heads * config.head_width) * float_bytes;
    shape.query_bytes = host_rows * (q_bytes + 2 * kv_bytes);
    shape.mixed_bytes = host_rows * q_bytes;
  }
  return sweep;
}

double SweepCosts::MatmulSeconds(double flops_per_row, double rows) const {
  return rates_.MatmulSeconds(model_.work.loaded, model_.config.model_width, flops_per_row * rows,
                              rows);
}

double SweepCosts::UnpackSeconds(double elements) const {
  return elements == 0.0 ? 0.0 : rates_.UnpackSeconds(model_.work.stored, elements);
}

double SweepCosts::EmbeddingSeconds(double rows) const {
  const ModelWork& work = model_.work;
  return rates_.RowSeconds(rows * work.embedding_row_bytes) +
         (work.projection_flops_per_row > 0.0 ? MatmulSeconds(work.projection_flops_per_row, rows)
                                              : 0.0) +
         EmbeddingReadSeconds(rows) + EmbeddingUploadSeconds(rows);
}

double SweepCosts::EmbeddingReadSeconds(double rows) const {
  const ModelWork& work = model_.work;
  return WeightSeconds(LaneId::kRead,
                       HitShare(work.embedding_shards, rows) * work.embedding_disk_bytes);
}

double SweepCosts::EmbeddingUploadSeconds(double rows) const {
  const ModelWork& work = model_.work;
  return WeightSeconds(LaneId::kUpload,
                       HitShare(work.embedding_shards, rows) *
                           (work.embedding_disk_bytes + work.embedding_host_bytes));
}

double SweepCosts::HeadRows(double sampled_rows) const {
  return std::min(sampled_rows, kHeadGroupRows);
}

double SweepCosts::HeadRestSeconds(double sampled_rows) const {
  const PartWork& head = model_.work.head;
  double seconds = rates_.RowSeconds(sampled_rows * model_.work.head_row_bytes) +
                   (model_.work.projection_flops_per_row > 0.0 && sampled_rows > 0.0
                        ? MatmulSeconds(model_.work.projection_flops_per_row, sampled_rows)
                        : 0.0);
  const double further = sampled_rows - HeadRows(sampled_rows);
  if (further <= 0.0) {
    return seconds;
  }
  // Groups behind the first one read what is streamed of the head again, and wait for it.
  const double looks = std::ceil(further / kHeadGroupRows);
  double flops_per_row = head.resident_flops_per_row;
  for (const StreamedWork& piece : head.pieces) {
    flops_per_row += piece.resident_flops_per_row + piece.streamed.flops_per_row;
    seconds += looks * (WeightSeconds(LaneId::kRead, piece.streamed.disk_bytes) +
                        UnpackSeconds(piece.streamed.unpacked_elements));
  }
  return seconds + rates_.MatmulSeconds(model_.work.loaded, model_.config.model_width,
                                        flops_per_row * further, std::min(further, kHeadGroupRows));
}

SweepCosts::ExpertTimes SweepCosts::TimesOfExperts(double rows) const {
  const ExpertWork& experts = model_.work.experts;
  ExpertTimes times;
  if (experts.count == 0 || rows <= 0.0) {
    return times;
  }
  const double all = Count(experts.count);
  const double chosen = Count(experts.per_token);
  // Rows choose at random.
  const double hit = all * (1.0 - std::pow(1.0 - chosen / all, rows));
  times.compute = hit * MatmulSeconds(experts.flops_per_row, rows * chosen / hit) +
                  rates_.RowSeconds(rows * chosen * experts.row_bytes);
  times.unpack = hit * UnpackSeconds(experts.unpacked_elements);
  times.read = WeightSeconds(LaneId::kRead, hit * experts.disk_bytes);
  times.upload_disk = WeightSeconds(LaneId::kUpload, hit * experts.disk_bytes);
  times.upload_host = WeightSeconds(LaneId::kUpload, hit * experts.host_bytes);
  times.first_read =
      experts.disk_bytes > 0.0 ? WeightSeconds(LaneId::kRead, experts.shard_bytes) : 0.0;
  return times;
}

double SweepCosts::ExpertSeconds(double rows) const {
  const ExpertTimes times = TimesOfExperts(rows);
  return std::max(times.compute + times.unpack + times.upload_disk + times.upload_host,
                  times.read) +
         times.first_read;
}

double SweepCosts::WeightSeconds(LaneId lane, double bytes) const {
  constexpr double kShardBytes = 4 << 20;
  return bytes == 0.0 || (model_.unified_memory && lane == LaneId::kUpload)
             ? 0.0
             : rates_.TransferSeconds(lane, bytes, kShardBytes);
}

double SweepCosts::PageSeconds(LaneId lane, double bytes) const {
  return bytes == 0.0 ? 0.0 : rates_.TransferSeconds(lane, bytes, page_bytes_);
}

double SweepCosts::RowsSeconds(LaneId lane, double bytes) const {
  return bytes == 0.0 ? 0.0 : rates_.TransferSeconds(lane, bytes, bytes);
}

LaneSeconds SweepCosts::SecondsOf(const SweepLoad& load) const {
  LaneSeconds seconds = {};
  const auto on = [&](LaneId lane) -> double& { return seconds[static_cast<size_t>(lane)]; };
  double& compute = on(LaneId::kCompute);
  const double layers = num_layers_[0] + num_layers_[1];
  bool together = true;
  for (size_t i = 0; i < load.batches.size(); ++i) {
    const BatchLoad& batch = load.batches[i];
    const BatchShape& shape = load.shape.batches[i];
    compute += MatmulSeconds(layers_.flops_per_row, batch.rows) +
               UnpackSeconds(layers_.unpacked_elements) +
               RowSeconds(batch.rows * layers_.row_bytes) + EmbeddingSeconds(batch.rows) +
               (layers_.pieces + layers + 1.0) * step_seconds();
    for (size_t kind = 0; kind < 2; ++kind) {
      const KvMoves& kv = shape.kv[kind];
      const auto move = [&](LaneId lane, int64_t bytes) {
        on(lane) += num_layers_[kind] * PageSeconds(lane, Count(bytes));
      };
      move(LaneId::kRead, kv.read_bytes);
      move(LaneId::kUpload, kv.upload_bytes);
      move(LaneId::kDownload, kv.download_bytes);
      move(LaneId::kWrite, kv.write_bytes);
      compute += num_layers_[kind] * batch.device_attention_seconds[kind];
      on(LaneId::kHostAttention) += num_layers_[kind] * batch.host_attention_seconds[kind];
    }
    const auto move_rows = [&](LaneId lane, int64_t bytes) {
      on(lane) += layers * RowsSeconds(lane, Count(bytes));
    };
    if (shape.activations == Tier::kDisk) {
      move_rows(LaneId::kRead, shape.activation_bytes);
      move_rows(LaneId::kWrite, shape.activation_bytes);
    }
    if (shape.activations != Tier::kDevice && !model_.unified_memory) {
      move_rows(LaneId::kUpload, shape.activation_bytes);
      move_rows(LaneId::kDownload, shape.activation_bytes);
    }
    if (shape.query_bytes > 0) {
      move_rows(LaneId::kDownload, shape.query_bytes);
      move_rows(LaneId::kUpload, shape.mixed_bytes);
    }
    if (shape.activations != Tier::kDevice) {
      together = false;
    }
  }
  if (together) {
    compute += num_expert_layers_ * ExpertSeconds(load.rows);
  } else {
    for (const BatchLoad& batch : load.batches) {
      compute += num_expert_layers_ * ExpertSeconds(batch.rows);
    }
  }
  const double head_rows = HeadRows(load.sampled_rows);
  compute += (head_rows > 0.0 ? MatmulSeconds(head_.flops_per_row, head_rows) : 0.0) +
             UnpackSeconds(head_.unpacked_elements) + HeadRestSeconds(load.sampled_rows) +
             (head_.pieces + 1.0) * step_seconds();
  const double disk_bytes = layers_.disk_bytes + head_.disk_bytes;
  compute += disk_bytes * model_.compute_seconds_per_read_byte;
  on(LaneId::kRead) += WeightSeconds(LaneId::kRead, disk_bytes);
  on(LaneId::kUpload) += WeightSeconds(LaneId::kUpload, streamed_bytes_);
  return seconds;
}

ComputeClock::Times ComputeClock::Next(const Step& step) {
  const ModelWork& work = costs_.model().work;
  Times times;
  if (step.layer == kEmbedding) {
    times.after_wait = costs_.EmbeddingSeconds(load_.batches[static_cast<size_t>(step.batch)].rows);
  } else if (step.layer == static_cast<int64_t>(work.layers.size())) {
    times = OfPiece(step, {&work.head, nullptr}, costs_.HeadRows(load_.sampled_rows));
    times.after_wait += step.is_last_piece ? costs_.HeadRestSeconds(load_.sampled_rows) : 0.0;
  } else if (step.batch == kAllBatches) {
    times.after_wait = costs_.ExpertSeconds(load_.rows);
  } else {
    const LayerWork& layer = work.layers[static_cast<size_t>(step.layer)];
    const double rows = load_.batches[static_cast<size_t>(step.batch)].rows;
    times = OfPiece(step,
                    {step.part == LayerPart::kOutputs ? nullptr : &layer.inputs,
                     step.part == LayerPart::kInputs ? nullptr : &layer.outputs},
                    rows);
    const size_t index = static_cast<size_t>(step.layer);
    if (step.is_last_piece && step.part != LayerPart::kInputs && work.has_experts[index] &&
        !load_.shape.experts_together[index]) {
      times.after_wait += costs_.ExpertSeconds(rows);
    }
  }
  times.after_wait += costs_.step_seconds();
  has_begun_ = !step.is_last_piece;
  if (step.is_last_piece) {
    has_attended_ = false;
    next_piece_ = 0;
  }
  return times;
}

// Attention follows the first part; of a call that has no such part there is none.
ComputeClock::Times ComputeClock::OfPiece(const Step& step,
                                          const std::array<const PartWork*, 2>& parts,
                                          double rows) {
  Times times;
  double& before = has_begun_ && !step.is_last_piece ? times.before_wait : times.after_wait;
  const size_t of_first = parts[0] == nullptr ? 0 : parts[0]->pieces.size();
  const auto attend = [&] {
    if (!has_attended_ && parts[0] != nullptr) {
      before += Rest(*parts[0], rows) + AttentionSeconds(step);
    }
    has_attended_ = true;
  };
  if (step.is_last_piece) {
    attend();
    before += parts[1] == nullptr ? 0.0 : Rest(*parts[1], rows);
    return times;
  }
  const size_t index = next_piece_++;
  if (index >= of_first) {
    attend();
  }
  const StreamedWork& piece =
      index < of_first ? parts[0]->pieces[index] : parts[1]->pieces[index - of_first];
  if (rows > 0.0) {
    before += MatmulSeconds(piece.resident_flops_per_row, rows);
    times.after_wait += MatmulSeconds(piece.streamed.flops_per_row, rows);
  }
  times.after_wait += costs_.UnpackSeconds(piece.streamed.unpacked_elements) +
                      (piece.shards - 1.0) * costs_.step_seconds();
  if (step.batch <= 0) {
    times.after_wait += piece.streamed.disk_bytes * costs_.model().compute_seconds_per_read_byte;
  }
  return times;
}

double ComputeClock::Rest(const PartWork& part, double rows) {
  return (rows > 0.0 ? MatmulSeconds(part.resident_flops_per_row, rows) : 0.0) +
         costs_.RowSeconds(rows * part.row_bytes);
}

double ComputeClock::MatmulSeconds(double flops_per_row, double rows) {
  if (rows != rows_) {
    rows_ = rows;
    seconds_per_flop_ = costs_.MatmulSeconds(1.0, rows);
  }
  return flops_per_row * seconds_per_flop_;
}

double ComputeClock::AttentionSeconds(const Step& step) const {
  if (step.batch == kAllBatches) {
    return 0.0;
  }
  const BatchLoad& batch = load_.batches[static_cast<size_t>(step.batch)];
  return batch
      .device_attention_seconds[load_.shape.slides[static_cast<size_t>(step.layer)] ? 1 : 0];
}

}  // namespace nightshift
