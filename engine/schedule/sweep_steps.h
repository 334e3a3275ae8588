// SweepSteps: the steps of a sweep with what each of them waits for, as plain data. Pure.
//
// A sweep visits layer by layer and in a layer batch by batch. Beside that work, weights that are
// not on the device come shard by shard, and the keys, values and hidden rows of batches that lie
// elsewhere come before a batch and go back after it. Steps are listed in an order that respects
// every wait, so running them one by one is right, and running each lane by itself, in the order of
// the list, is right and faster. Nothing waits for a whole lane: waits name single steps.
//
// Weights are a stream: position p is shard p mod S of the sweep p / S, for S streamed shards. They
// lie in a ring (shard_ring.h) until the last batch has used them, and are read ahead as far as the
// ring has room, also across the edge of a sweep. With one batch a ring of a few shards is enough;
// with several it has to hold a layer, and one that holds two spreads the reading of the next layer
// over all batches of this one.
//
// Sources: FlexGen (Sheng et al. 2023) section 4.1 and its Algorithm 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/schedule/shard_ring.h"
#include "engine/schedule/tier.h"

namespace nightshift {

// An in-order queue of work, one for each kind of hardware that works by itself.
enum class LaneId : uint8_t { kRead, kUpload, kCompute, kHostAttention, kDownload, kWrite };
inline constexpr size_t kNumLanes = 6;
const char* LaneName(LaneId lane);

enum class StepKind : uint8_t {
  kReadWeights,    // disk -> ring
  kUploadWeights,  // ring or host -> ring of the device; not with unified memory
  kReadKv,         // disk -> staging
  kUploadKv,
  kReadActivations,
  kUploadActivations,
  kCompute,
  kDownloadQueries,  // with keys and values, for attention on the host
  kHostAttention,
  kUploadMixed,  // the output of that
  kDownloadKv,
  kWriteKv,
  kDownloadActivations,
  kWriteActivations,
};
const char* StepKindName(StepKind kind);
LaneId LaneOf(StepKind kind);

// Which part of a layer a call computes.
enum class LayerPart : uint8_t {
  kWhole,
  kInputs,   // up to queries, keys and values
  kOutputs,  // from the output of attention on
};

// The embedding and the output head as layers.
inline constexpr int64_t kEmbedding = -1;
inline constexpr int64_t kAllBatches = -1;

struct Step {
  int64_t id = 0;  // counts on over sweeps
  StepKind kind = StepKind::kCompute;
  int64_t layer = 0;
  int64_t batch = 0;  // kAllBatches: experts and the head
  LayerPart part = LayerPart::kWhole;
  // Of kReadWeights, kUploadWeights and the piece of a computation that multiplies by a shard; -1
  // elsewhere. The computation of one part is a piece for each of its streamed shards, in order,
  // and a last one.
  int64_t position = -1;
  bool is_last_piece = false;
  int64_t offset = -1;         // of kReadWeights and kUploadWeights: the place in the ring
  size_t slot = 0;             // of staging memory, where the step uses some
  int64_t bytes = 0;           // moved
  std::vector<int64_t> waits;  // ids of earlier steps, ascending
};

// A shard that is not on the device.
struct StreamedShard {
  int64_t bytes = 0;  // of its place in a ring
  Tier tier = Tier::kDisk;
  int64_t layer = 0;  // num_layers: the head
  bool follows_attention = false;
};

// What is fixed for an engine.
struct StreamShape {
  int64_t num_layers = 0;
  std::vector<StreamedShard> shards;  // in the order of use: layers ascend
  bool unified_memory = true;
  int64_t host_ring_bytes = 0;    // of shards from disk; with unified memory the only ring
  int64_t device_ring_bytes = 0;  // of all streamed shards; not with unified memory
  // Staging slots for batches' data, taken in turn: 2, or 3 with attention on the host.
  size_t num_slots = 2;
  // False: every step waits for the one before it, and nothing is read ahead.
  bool overlap = true;
};

// Bytes of one batch that cross tiers at a layer.
struct KvMoves {
  int64_t read_bytes = 0;
  int64_t upload_bytes = 0;
  int64_t download_bytes = 0;
  int64_t write_bytes = 0;
};

struct BatchShape {
  std::array<KvMoves, 2> kv;  // at a layer that keeps every position; at one that keeps a window
  Tier activations = Tier::kDevice;
  int64_t activation_bytes = 0;
  // Above 0: some of its spans attend on the host. Queries with keys and values; their output.
  int64_t query_bytes = 0;
  int64_t mixed_bytes = 0;
};

struct SweepShape {
  std::vector<BatchShape> batches;
  std::vector<bool> slides;  // by layer: keeps a window only
  // By layer: its experts run over all batches together once their attention is done.
  std::vector<bool> experts_together;
};

// Makes the steps of one sweep after another. What it keeps between them is how far weights are
// read.
class SweepSteps {
 public:
  // The rings hold what they must: one shard, or a layer where sweeps have several batches.
  explicit SweepSteps(StreamShape shape);

  std::vector<Step> Next(const SweepShape& sweep);

  // Of the next sweep's shards.
  int64_t first_position() const { return first_position_; }

 private:
  // One call of the compute lane, in its order.
  struct Call {
    int64_t layer = 0;
    int64_t batch = 0;
    LayerPart part = LayerPart::kWhole;
    bool releases_weights = false;  // no later call uses the shards of this part
  };
  std::vector<Call> ListCalls(const SweepShape& sweep) const;
  using Use = std::pair<int64_t, int64_t>;  // (layer, batch)
  // What has been listed of one (layer, batch), by step id; -1: no such step.
  struct UseSteps {
    std::optional<size_t> turn;  // index in slot_order_
    bool has_loaded_kv = false;
    bool has_loaded_activations = false;
    bool is_stored = false;
    int64_t read_kv = -1;
    int64_t upload_kv = -1;
    int64_t activations_in = -1;
    int64_t inputs_end = -1;
    int64_t mixed_in = -1;
    int64_t attended = -1;
    int64_t compute_end = -1;
    int64_t download_kv = -1;
    int64_t write_kv = -1;
    int64_t download_activations = -1;
    int64_t write_activations = -1;
  };

  // Lists what brings a call's data, as far as the steps that it waits for are listed.
  void ListLoads(const SweepShape& sweep, const Call& call);
  void ListKvLoads(const KvMoves& kv, const Call& call, UseSteps& use);
  void ListActivationLoads(const BatchShape& batch, const Call& call, UseSteps& use);
  void ListCompute(const SweepShape& sweep, const Call& call);
  // The first of the call's layer and the one behind its last; none for the embedding and experts,
  // whose shards are not streamed in order.
  std::pair<size_t, size_t> ShardsOf(const Call& call) const;
  std::vector<int64_t> WaitsOfCompute(const SweepShape& sweep, const Call& call);
  void ListHostAttention(const BatchShape& batch, const Call& call);
  void ListStores(const SweepShape& sweep, const Call& call);
  // The end of the shards, by position, that may be on their way to where a call needs them.
  int64_t DueDuring(const Call& call, int64_t num_batches) const;
  void ListDueWeights();
  // Lists reading and uploading of weights below these positions, as far as there is room.
  void ListWeights(int64_t read_end, int64_t upload_end);
  bool ListRead();
  bool ListUpload();
  void ReleaseShard(int64_t released_by);
  int64_t& StepThatBrings(int64_t position);
  const StreamedShard& ShardAt(int64_t position) const {
    return shape_.shards[static_cast<size_t>(position) % shape_.shards.size()];
  }
  int64_t Add(StepKind kind, const Call& call, int64_t bytes, std::vector<int64_t> waits);
  int64_t Add(Step step, std::vector<int64_t> waits);
  UseSteps& UseOf(const Call& call) { return uses_[{call.layer, call.batch}]; }
  // The slot's owner before has listed all its steps.
  bool SlotIsFree(const UseSteps& use);
  // The last step of one kind that an owner of the slot before this one has listed; all of those
  // are stored. Steps before it are waited for through it.
  int64_t LastInSlot(const UseSteps& use, int64_t UseSteps::*step);

  const StreamShape shape_;
  std::vector<size_t> first_shard_of_layer_;  // [num_layers + 2], the head's included
  ShardRing host_ring_;
  ShardRing device_ring_;
  int64_t next_id_ = 0;
  int64_t first_position_ = 0;  // of the sweep that is being made
  int64_t next_read_ = 0;
  int64_t next_upload_ = 0;
  int64_t next_release_ = 0;
  int64_t due_ = 0;
  int64_t host_room_since_ = -1;    // the step that made the youngest room in the host's ring
  int64_t device_room_since_ = -1;  // the same for the device's ring
  std::deque<int64_t> brought_by_;  // by position from next_release_ on: the step that brings it
  // Of the sweep that is being made:
  bool in_parts_ = false;  // some batch attends on the host
  std::vector<Step> steps_;
  std::map<Use, UseSteps> uses_;
  std::vector<Use> slot_order_;  // uses that take a slot
  // By slot: the last step of each kind of its owners before `next_turn`.
  struct SlotHistory {
    size_t next_turn = 0;
    UseSteps last;
  };
  std::vector<SlotHistory> slot_histories_;
};

}  // namespace nightshift
