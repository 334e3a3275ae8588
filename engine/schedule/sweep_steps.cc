#include "engine/schedule/sweep_steps.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

constexpr int64_t kNone = -1;

bool AttendsOnHost(const BatchShape& batch) {
  return batch.query_bytes > 0;
}

bool CrossesTiers(const KvMoves& kv) {
  return kv.read_bytes + kv.upload_bytes + kv.download_bytes + kv.write_bytes > 0;
}

bool CrossesTiers(const BatchShape& batch) {
  return batch.activations != Tier::kDevice || CrossesTiers(batch.kv[0]) ||
         CrossesTiers(batch.kv[1]);
}

bool UsesShard(LayerPart part, const StreamedShard& shard) {
  return part == LayerPart::kWhole || (part == LayerPart::kOutputs) == shard.follows_attention;
}

}  // namespace

const char* LaneName(LaneId lane) {
  switch (lane) {
    case LaneId::kRead:
      return "read";
    case LaneId::kUpload:
      return "upload";
    case LaneId::kCompute:
      return "compute";
    case LaneId::kHostAttention:
      return "host attention";
    case LaneId::kDownload:
      return "download";
    case LaneId::kWrite:
      return "write";
  }
  return "";
}

const char* StepKindName(StepKind kind) {
  switch (kind) {
    case StepKind::kReadWeights:
      return "read weights";
    case StepKind::kUploadWeights:
      return "upload weights";
    case StepKind::kReadKv:
      return "read kv";
    case StepKind::kUploadKv:
      return "upload kv";
    case StepKind::kReadActivations:
      return "read activations";
    case StepKind::kUploadActivations:
      return "upload activations";
    case StepKind::kCompute:
      return "compute";
    case StepKind::kDownloadQueries:
      return "download queries";
    case StepKind::kHostAttention:
      return "host attention";
    case StepKind::kUploadMixed:
      return "upload mixed";
    case StepKind::kDownloadKv:
      return "download kv";
    case StepKind::kWriteKv:
      return "write kv";
    case StepKind::kDownloadActivations:
      return "download activations";
    case StepKind::kWriteActivations:
      return "write activations";
  }
  return "";
}

LaneId LaneOf(StepKind kind) {
  switch (kind) {
    case StepKind::kReadWeights:
    case StepKind::kReadKv:
    case StepKind::kReadActivations:
      return LaneId::kRead;
    case StepKind::kUploadWeights:
    case StepKind::kUploadKv:
    case StepKind::kUploadActivations:
    case StepKind::kUploadMixed:
      return LaneId::kUpload;
    case StepKind::kCompute:
      return LaneId::kCompute;
    case StepKind::kHostAttention:
      return LaneId::kHostAttention;
    case StepKind::kDownloadQueries:
    case StepKind::kDownloadKv:
    case StepKind::kDownloadActivations:
      return LaneId::kDownload;
    case StepKind::kWriteKv:
    case StepKind::kWriteActivations:
      return LaneId::kWrite;
  }
  return LaneId::kCompute;
}

SweepSteps::SweepSteps(StreamShape shape)
    : shape_(std::move(shape)),
      host_ring_(shape_.host_ring_bytes),
      device_ring_(shape_.device_ring_bytes) {
  CHECK_GE(shape_.num_slots, 1U);
  const auto is_before = [](const StreamedShard& shard, int64_t layer) {
    return shard.layer < layer;
  };
  CHECK(std::is_sorted(
      shape_.shards.begin(), shape_.shards.end(),
      [](const StreamedShard& a, const StreamedShard& b) { return a.layer < b.layer; }));
  for (int64_t layer = 0; layer <= shape_.num_layers + 1; ++layer) {
    const auto first =
        std::lower_bound(shape_.shards.begin(), shape_.shards.end(), layer, is_before);
    first_shard_of_layer_.push_back(static_cast<size_t>(first - shape_.shards.begin()));
  }
}

std::vector<Step> SweepSteps::Next(const SweepShape& sweep) {
  CHECK_EQ(sweep.slides.size(), static_cast<size_t>(shape_.num_layers));
  CHECK_EQ(sweep.experts_together.size(), static_cast<size_t>(shape_.num_layers));
  uses_.clear();
  slot_order_.clear();
  slot_histories_.assign(shape_.num_slots, {});
  for (size_t slot = 0; slot < shape_.num_slots; ++slot) {
    slot_histories_[slot].next_turn = slot;
  }
  due_ = 0;
  in_parts_ = std::any_of(sweep.batches.begin(), sweep.batches.end(), AttendsOnHost);
  const std::vector<Call> calls = ListCalls(sweep);
  for (size_t i = 0; i < calls.size(); ++i) {
    ListLoads(sweep, calls[i]);
    if (shape_.overlap) {
      if (i + 1 < calls.size()) {
        ListLoads(sweep, calls[i + 1]);
      }
      due_ = std::max(due_, DueDuring(calls[i], static_cast<int64_t>(sweep.batches.size())));
      ListDueWeights();
      // Of one batch they are those of a layer, and would hold up the weights of the one before.
      const size_t ahead = sweep.batches.size() > 1 ? shape_.num_slots : 2;
      for (size_t next = i + 2; next < std::min(i + ahead, calls.size()); ++next) {
        ListLoads(sweep, calls[next]);
      }
    }
    ListCompute(sweep, calls[i]);
    ListStores(sweep, calls[i]);
  }
  first_position_ += static_cast<int64_t>(shape_.shards.size());
  CHECK_EQ(next_release_, first_position_);
  return std::move(steps_);
}

// With attention on the host the inputs of a batch are computed before the outputs of the batch
// before it, so that the host attends meanwhile.
std::vector<SweepSteps::Call> SweepSteps::ListCalls(const SweepShape& sweep) const {
  const int64_t num_batches = static_cast<int64_t>(sweep.batches.size());
  std::vector<Call> calls;
  const auto add = [&](int64_t layer, int64_t batch, LayerPart part) {
    calls.push_back({layer, batch, part, batch == num_batches - 1 || batch == kAllBatches});
  };
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    add(kEmbedding, batch, LayerPart::kWhole);
  }
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
    for (int64_t batch = 0; batch < num_batches; ++batch) {
      if (!in_parts_) {
        add(layer, batch, LayerPart::kWhole);
        continue;
      }
      add(layer, batch, LayerPart::kInputs);
      if (batch > 0) {
        add(layer, batch - 1, LayerPart::kOutputs);
      }
    }
    if (in_parts_) {
      add(layer, num_batches - 1, LayerPart::kOutputs);
    }
    if (sweep.experts_together[static_cast<size_t>(layer)]) {
      add(layer, kAllBatches, LayerPart::kWhole);
    }
  }
  add(shape_.num_layers, kAllBatches, LayerPart::kWhole);
  return calls;
}

bool SweepSteps::SlotIsFree(const UseSteps& use) {
  return *use.turn < shape_.num_slots || uses_[slot_order_[*use.turn - shape_.num_slots]].is_stored;
}

int64_t SweepSteps::LastInSlot(const UseSteps& use, int64_t UseSteps::*step) {
  if (!use.turn.has_value()) {
    return kNone;
  }
  SlotHistory& history = slot_histories_[*use.turn % shape_.num_slots];
  CHECK_LE(history.next_turn, *use.turn);
  for (; history.next_turn < *use.turn; history.next_turn += shape_.num_slots) {
    const UseSteps& owner = uses_[slot_order_[history.next_turn]];
    CHECK(owner.is_stored);
    for (int64_t UseSteps::*const listed :
         {&UseSteps::read_kv, &UseSteps::upload_kv, &UseSteps::activations_in,
          &UseSteps::inputs_end, &UseSteps::mixed_in, &UseSteps::attended, &UseSteps::compute_end,
          &UseSteps::download_kv, &UseSteps::write_kv, &UseSteps::download_activations,
          &UseSteps::write_activations}) {
      if (owner.*listed != kNone) {
        history.last.*listed = owner.*listed;
      }
    }
  }
  return history.last.*step;
}

void SweepSteps::ListLoads(const SweepShape& sweep, const Call& call) {
  if (call.batch == kAllBatches || call.part == LayerPart::kOutputs) {
    return;
  }
  const BatchShape& batch = sweep.batches[static_cast<size_t>(call.batch)];
  if (!in_parts_ && !CrossesTiers(batch)) {
    return;
  }
  UseSteps& use = UseOf(call);
  if (!use.turn.has_value()) {
    use.turn = slot_order_.size();
    slot_order_.emplace_back(call.layer, call.batch);
  }
  if (!SlotIsFree(use) || call.layer == kEmbedding) {
    return;
  }
  if (!use.has_loaded_kv) {
    use.has_loaded_kv = true;
    ListKvLoads(batch.kv[sweep.slides[static_cast<size_t>(call.layer)] ? 1 : 0], call, use);
  }
  if (!use.has_loaded_activations && uses_[{call.layer - 1, call.batch}].is_stored) {
    use.has_loaded_activations = true;
    ListActivationLoads(batch, call, use);
  }
}

void SweepSteps::ListKvLoads(const KvMoves& kv, const Call& call, UseSteps& use) {
  const auto before = [&](int64_t UseSteps::*step) { return LastInSlot(use, step); };
  if (kv.read_bytes > 0) {
    use.read_kv = shape_.unified_memory
                      ? Add(StepKind::kReadKv, call, kv.read_bytes,
                            {before(&UseSteps::compute_end), before(&UseSteps::write_kv)})
                      : Add(StepKind::kReadKv, call, kv.read_bytes,
                            {before(&UseSteps::upload_kv), before(&UseSteps::attended),
                             before(&UseSteps::write_kv)});
  }
  if (kv.upload_bytes > 0) {
    use.upload_kv =
        Add(StepKind::kUploadKv, call, kv.upload_bytes,
            {use.read_kv, before(&UseSteps::compute_end), before(&UseSteps::download_kv)});
  }
}

void SweepSteps::ListActivationLoads(const BatchShape& batch, const Call& call, UseSteps& use) {
  const auto before = [&](int64_t UseSteps::*step) { return LastInSlot(use, step); };
  const UseSteps& layer_before = uses_[{call.layer - 1, call.batch}];
  if (batch.activations == Tier::kDisk) {
    use.activations_in =
        shape_.unified_memory
            ? Add(StepKind::kReadActivations, call, batch.activation_bytes,
                  {layer_before.write_activations, before(&UseSteps::compute_end),
                   before(&UseSteps::write_activations)})
            : Add(StepKind::kReadActivations, call, batch.activation_bytes,
                  {layer_before.write_activations, before(&UseSteps::activations_in),
                   before(&UseSteps::write_activations)});
  }
  if (batch.activations != Tier::kDevice && !shape_.unified_memory) {
    use.activations_in =
        Add(StepKind::kUploadActivations, call, batch.activation_bytes,
            {use.activations_in, layer_before.download_activations, before(&UseSteps::compute_end),
             before(&UseSteps::download_activations)});
  }
}

std::vector<int64_t> SweepSteps::WaitsOfCompute(const SweepShape& sweep, const Call& call) {
  if (call.batch == kAllBatches) {
    if (call.layer < shape_.num_layers) {
      return {};
    }
    // The head reads the rows where the last layer left them.
    std::vector<int64_t> waits;
    for (int64_t batch = 0; batch < static_cast<int64_t>(sweep.batches.size()); ++batch) {
      const UseSteps& last = uses_[{call.layer - 1, batch}];
      waits.push_back(last.download_activations);
      waits.push_back(last.write_activations);
    }
    return waits;
  }
  const UseSteps& use = UseOf(call);
  if (call.part == LayerPart::kOutputs) {
    return {use.mixed_in};
  }
  // Staging that nothing was loaded into may still be on its way out for the owner before.
  const auto before = [&](int64_t UseSteps::*step) { return LastInSlot(use, step); };
  std::vector<int64_t> waits = {use.activations_in};
  waits.push_back(shape_.unified_memory ? use.read_kv : use.upload_kv);
  if (waits.back() == kNone) {
    waits.push_back(shape_.unified_memory ? before(&UseSteps::write_kv)
                                          : before(&UseSteps::download_kv));
  }
  if (use.activations_in == kNone) {
    waits.push_back(shape_.unified_memory ? before(&UseSteps::write_activations)
                                          : before(&UseSteps::download_activations));
  }
  return waits;
}

std::pair<size_t, size_t> SweepSteps::ShardsOf(const Call& call) const {
  const bool is_experts = call.batch == kAllBatches && call.layer < shape_.num_layers;
  if (call.layer == kEmbedding || is_experts) {
    return {0, 0};
  }
  const size_t layer = static_cast<size_t>(call.layer);
  return {first_shard_of_layer_[layer], first_shard_of_layer_[layer + 1]};
}

void SweepSteps::ListCompute(const SweepShape& sweep, const Call& call) {
  Step piece{.kind = StepKind::kCompute,
             .layer = call.layer,
             .batch = call.batch,
             .part = call.part,
             .waits = {}};
  if (call.batch != kAllBatches) {
    piece.slot = UseOf(call).turn.value_or(0) % shape_.num_slots;
  }
  std::vector<int64_t> waits = WaitsOfCompute(sweep, call);
  const auto [first_shard, end_shard] = ShardsOf(call);
  for (size_t i = first_shard; i < end_shard; ++i) {
    if (!UsesShard(call.part, shape_.shards[i])) {
      continue;
    }
    piece.position = first_position_ + static_cast<int64_t>(i);
    if (!shape_.overlap) {
      ListWeights(piece.position + 1, piece.position + 1);
    }
    waits.push_back(StepThatBrings(piece.position));
    CHECK_GE(waits.back(), 0);  // else a ring cannot hold what one call needs
    const int64_t id = Add(piece, std::move(waits));
    waits.clear();
    if (call.releases_weights) {
      ReleaseShard(id);
    }
  }
  piece.position = kNone;
  piece.is_last_piece = true;
  const int64_t last = Add(piece, std::move(waits));
  if (call.batch == kAllBatches) {
    return;
  }
  UseSteps& use = UseOf(call);
  if (call.part == LayerPart::kInputs) {
    use.inputs_end = last;
    ListHostAttention(sweep.batches[static_cast<size_t>(call.batch)], call);
  } else {
    use.compute_end = last;
  }
}

void SweepSteps::ListHostAttention(const BatchShape& batch, const Call& call) {
  if (!AttendsOnHost(batch)) {
    return;
  }
  UseSteps& use = UseOf(call);
  const auto before = [&](int64_t UseSteps::*step) { return LastInSlot(use, step); };
  const int64_t queries = Add(StepKind::kDownloadQueries, call, batch.query_bytes,
                              {use.inputs_end, before(&UseSteps::attended)});
  // Staging that nothing was read into may still be on its way out for the owner before.
  const bool is_read = use.read_kv != kNone;
  use.attended = Add(StepKind::kHostAttention, call, 0,
                     {queries, use.read_kv, before(&UseSteps::mixed_in),
                      is_read ? kNone : before(&UseSteps::write_kv),
                      is_read ? kNone : before(&UseSteps::upload_kv)});
  use.mixed_in = Add(StepKind::kUploadMixed, call, batch.mixed_bytes, {use.attended});
}

void SweepSteps::ListStores(const SweepShape& sweep, const Call& call) {
  if (call.batch == kAllBatches || call.part == LayerPart::kInputs) {
    return;
  }
  const BatchShape& batch = sweep.batches[static_cast<size_t>(call.batch)];
  UseSteps& use = UseOf(call);
  const auto before = [&](int64_t UseSteps::*step) { return LastInSlot(use, step); };
  const bool unified = shape_.unified_memory;
  use.is_stored = true;
  if (call.layer >= 0) {
    const KvMoves& kv = batch.kv[sweep.slides[static_cast<size_t>(call.layer)] ? 1 : 0];
    if (kv.download_bytes > 0) {
      // The host's staging, where the pages go on to disk from there.
      const bool is_staged = kv.write_bytes > 0 && use.read_kv == kNone;
      use.download_kv = Add(StepKind::kDownloadKv, call, kv.download_bytes,
                            {use.compute_end, is_staged ? before(&UseSteps::write_kv) : kNone,
                             is_staged ? before(&UseSteps::upload_kv) : kNone});
    }
    if (kv.write_bytes > 0) {
      use.write_kv = Add(StepKind::kWriteKv, call, kv.write_bytes,
                         {use.download_kv, use.attended, unified ? use.compute_end : kNone});
    }
  }
  if (batch.activations != Tier::kDevice && !unified) {
    use.download_activations = Add(StepKind::kDownloadActivations, call, batch.activation_bytes,
                                   {use.compute_end, before(&UseSteps::write_activations)});
  }
  if (batch.activations == Tier::kDisk) {
    use.write_activations = Add(StepKind::kWriteActivations, call, batch.activation_bytes,
                                {unified ? use.compute_end : use.download_activations});
  }
}

// A lane works in order: a whole layer's weights in front of the keys of a batch would let it wait
// for them all. So each batch lets its part of the next layer's weights go.
int64_t SweepSteps::DueDuring(const Call& call, int64_t num_batches) const {
  if (num_batches == 1) {
    return INT64_MAX;
  }
  if (call.layer == shape_.num_layers) {
    return first_position_ + static_cast<int64_t>(shape_.shards.size() + first_shard_of_layer_[1]);
  }
  const size_t layer = static_cast<size_t>(call.layer + 1);
  const int64_t first = static_cast<int64_t>(first_shard_of_layer_[layer]);
  const int64_t count = static_cast<int64_t>(first_shard_of_layer_[layer + 1]) - first;
  const int64_t parts =
      call.layer == kEmbedding || call.batch == kAllBatches ? num_batches : call.batch + 1;
  return first_position_ + first + (count * parts + num_batches - 1) / num_batches;
}

void SweepSteps::ListDueWeights() {
  ListWeights(shape_.unified_memory ? due_ : INT64_MAX, due_);
}

void SweepSteps::ListWeights(int64_t read_end, int64_t upload_end) {
  while (next_read_ < read_end && ListRead()) {
  }
  // Room that these uploads make in the host's ring is for the next call: a read that waits for an
  // upload would hold up all reads behind it. What is due itself has to be read.
  const auto read_due = [&] { return next_read_ <= next_upload_ && ListRead(); };
  while (!shape_.unified_memory && next_upload_ < upload_end && (ListUpload() || read_due())) {
  }
}

bool SweepSteps::ListRead() {
  const int64_t end = next_release_ + static_cast<int64_t>(shape_.shards.size());
  while (next_read_ < end && ShardAt(next_read_).tier == Tier::kHost) {
    ++next_read_;
  }
  if (next_read_ >= end) {
    return false;
  }
  const StreamedShard& shard = ShardAt(next_read_);
  const std::optional<int64_t> offset = host_ring_.Place(shard.bytes);
  if (!offset.has_value()) {
    return false;
  }
  StepThatBrings(next_read_) = Add({.kind = StepKind::kReadWeights,
                                    .layer = shard.layer,
                                    .batch = kAllBatches,
                                    .position = next_read_,
                                    .offset = *offset,
                                    .bytes = shard.bytes,
                                    .waits = {}},
                                   {host_room_since_});
  ++next_read_;
  return true;
}

bool SweepSteps::ListUpload() {
  if (shape_.unified_memory ||
      next_upload_ >= next_release_ + static_cast<int64_t>(shape_.shards.size())) {
    return false;
  }
  const StreamedShard& shard = ShardAt(next_upload_);
  const bool comes_from_disk = shard.tier == Tier::kDisk;
  if (comes_from_disk && next_read_ <= next_upload_) {
    return false;
  }
  const std::optional<int64_t> offset = device_ring_.Place(shard.bytes);
  if (!offset.has_value()) {
    return false;
  }
  int64_t& brought_by = StepThatBrings(next_upload_);
  brought_by = Add({.kind = StepKind::kUploadWeights,
                    .layer = shard.layer,
                    .batch = kAllBatches,
                    .position = next_upload_,
                    .offset = *offset,
                    .bytes = shard.bytes,
                    .waits = {}},
                   {brought_by, device_room_since_});
  if (comes_from_disk) {
    host_ring_.Release();
    host_room_since_ = brought_by;
  }
  ++next_upload_;
  return true;
}

int64_t& SweepSteps::StepThatBrings(int64_t position) {
  const size_t index = static_cast<size_t>(position - next_release_);
  if (index >= brought_by_.size()) {
    brought_by_.resize(index + 1, kNone);
  }
  return brought_by_[index];
}

void SweepSteps::ReleaseShard(int64_t released_by) {
  brought_by_.pop_front();
  ++next_release_;
  if (shape_.unified_memory) {
    host_ring_.Release();
    host_room_since_ = released_by;
  } else {
    device_ring_.Release();
    device_room_since_ = released_by;
  }
  if (shape_.overlap) {
    ListDueWeights();
  }
}

int64_t SweepSteps::Add(StepKind kind, const Call& call, int64_t bytes,
                        std::vector<int64_t> waits) {
  return Add({.kind = kind,
              .layer = call.layer,
              .batch = call.batch,
              .part = call.part,
              .slot = UseOf(call).turn.value_or(0) % shape_.num_slots,
              .bytes = bytes,
              .waits = {}},
             std::move(waits));
}

int64_t SweepSteps::Add(Step step, std::vector<int64_t> waits) {
  step.id = next_id_++;
  if (!shape_.overlap) {
    waits.push_back(step.id - 1);
  }
  std::erase(waits, kNone);
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  step.waits = std::move(waits);
  steps_.push_back(std::move(step));
  return steps_.back().id;
}

}  // namespace nightshift
