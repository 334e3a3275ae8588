// Executor: runs sweeps on a device, step by step.
//
// Layer by layer, within a layer batch by batch (the zig-zag order), so that each weight is used
// for the whole block before the next is needed; experts run over all batches of the sweep at once.
// The steps of a sweep (schedule/sweep_steps) say what is moved beside that; this thread computes
// and hands all other steps to their lanes as it passes them in the list.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/execute/activation_store.h"
#include "engine/execute/host_attention.h"
#include "engine/execute/kv_staging.h"
#include "engine/execute/output_head.h"
#include "engine/execute/sequence.h"
#include "engine/execute/step_lanes.h"
#include "engine/io/disk_queue.h"
#include "engine/memory/kv_cache.h"
#include "engine/memory/pool.h"
#include "engine/memory/weight_stream.h"
#include "engine/model/config.h"
#include "engine/model/expert_ffn.h"
#include "engine/model/forward.h"
#include "engine/model/weights.h"
#include "engine/schedule/sweep_schedule.h"
#include "engine/schedule/sweep_steps.h"
#include "engine/schedule/timeline.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace nightshift {

struct ExecutorLimits {
  int64_t max_sweep_tokens = 0;
  int64_t max_batch_tokens = 0;
  int64_t max_batches = 1;  // of a sweep
  ActivationRows activations;
  KvStagingOptions kv;
  bool overlap = true;

  size_t num_slots() const { return kv.num_slots; }
};

// What the executor works with; all of it must outlive it.
struct ExecutorParts {
  const ModelConfig& config;
  const ModelWeights& weights;
  WeightStream* stream = nullptr;  // null when all weights are on the device
  StreamShape stream_shape;        // of it
  const KvCache& cache;
  Device& device;
  ComputeType compute_type = ComputeType::kF32;
  double sparse_attention = 1.0;  // as EngineOptions
  Pool& device_pool;
  Pool& host_pool;           // the same with unified memory
  std::string spill_folder;  // where activations on disk lie
  DiskQueueOptions disk;
};

// What a sweep found out.
struct SweepOutput {
  // For each of schedule.sampled, in order; nothing where the request wants no output.
  std::vector<std::optional<TokenLogprob>> sampled;
  // Of prompts whose log-probabilities are wanted: for each such span, in order, the tokens that
  // follow its scored rows.
  std::vector<TokenLogprob> scored;
  SweepTimes times;
  std::vector<StepTimes> steps;  // as SweepResult
};

// Rows of a span, counted from its first, whose next tokens are scored.
struct ScoredRows {
  int64_t first = 0;
  int64_t count = 0;
  int64_t rivals = 0;  // of the token behind the last of them, which are scored too

  int64_t num_scored() const { return count + rivals; }
};
ScoredRows ScoredRowsOf(const Span& span, const Sequence& sequence);

// Used by one thread; ops and lanes spread the work.
class Executor : private WeightAccess {
 public:
  // Bytes that Create takes from the pools; with unified memory the sum from the one.
  static int64_t DeviceBytes(const ModelConfig& config, const KvPageLayout& layout,
                             const ExecutorLimits& limits);
  static int64_t HostBytes(const ModelConfig& config, const KvPageLayout& layout,
                           const ExecutorLimits& limits);
  // Of the disk, for activations.
  static int64_t DiskBytes(const ModelConfig& config, const ExecutorLimits& limits);

  // Errors: RESOURCE_EXHAUSTED (pool), UNAVAILABLE (disk full); as DiskQueue::Create.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(ExecutorParts parts,
                                                          const ExecutorLimits& limits);

  // Computes the schedule's spans: keys and values go to the sequences' pages, which must have been
  // grown to hold them. Request indices of the schedule are indices in `sequences`; of these
  // nothing is changed but what an adjuster keeps for its next answer. Errors: INTERNAL naming a
  // request whose logits are not finite; what a lane reported, with its step: the executor is of no
  // use after that.
  absl::StatusOr<SweepOutput> Run(const SweepSchedule& schedule,
                                  std::span<const std::unique_ptr<Sequence>> sequences);

  // For tests: computes the schedule and returns the logits of all its rows, [num_rows, V].
  absl::StatusOr<std::vector<float>> ForwardLogits(
      const SweepSchedule& schedule, std::span<const std::unique_ptr<Sequence>> sequences);

 private:
  using Sequences = std::span<const std::unique_ptr<Sequence>>;

  Executor(ExecutorParts parts, const ExecutorLimits& limits);

  // Runs the steps of one sweep; `head` is what its last call computes. Nothing is sampled or
  // scored in the answer.
  absl::StatusOr<SweepOutput> RunSweep(const SweepSchedule& schedule, Sequences sequences,
                                       const std::function<void()>& head);
  SweepShape ShapeOf(const SweepSchedule& schedule, Sequences sequences) const;
  // The rows whose next token is one of the prompt that is to be reported.
  std::vector<HeadRow> RowsToScore(const SweepSchedule& schedule, Sequences sequences) const;
  void GatherTokens();
  // Rows of the sweep wherever they lie, for the head.
  void GatherRows(std::span<const int64_t> rows, MatrixView out);
  void GatherAscendingRows(std::span<const int64_t> rows, MatrixView out);
  // A batch's rows into the first slot.
  void BringRows(size_t batch);

  // From the step at the cursor on: hands steps to their lanes until a computation is next.
  void IssueUntilComputation();
  void Issue(const Step& step);
  void IssueWeights(const Step& step);
  void IssueKv(const Step& step);
  void IssueActivations(const Step& step);
  void IssueHostAttention(const Step& step);
  // The computation at the cursor, all pieces of it.
  void RunCall(const std::function<void()>& head);
  void Compute(const Step& call, const std::function<void()>& head);
  void ComputeLayer(const Step& call);
  void BeginPiece();
  void EndPiece();
  // Takes over what went wrong on a lane.
  void NoteFailure();
  // Of a streamed shard, from its position.
  size_t IndexAt(int64_t position) const;
  LayerBatch BatchAt(const Step& step, std::span<const AttentionSpan> spans) const;
  // What (layer, batch) needs, kept until all its steps have been issued.
  std::shared_ptr<const StagedLayer> Staged(int64_t layer, int64_t batch, size_t slot);
  absl::Status MoveOnDisk(TransferKind kind, const DiskFile& file,
                          std::span<const DiskCopy> copies);

  // WeightAccess, for `forward_` and the others.
  WeightShardView Acquire(ShardIndex expected) override;
  void Release() override;
  void ReadAside(std::span<const ShardIndex> shards,
                 const std::function<void(const WeightShardView&)>& use) override;
  void BeginExperts(const ExpertDemand& demand) override;
  WeightShardView AcquireOfExpert(ShardIndex expected) override;
  void ReleaseOfExpert() override;
  // Runs a copy to the device on its lane, when ops have ended, and waits for it.
  absl::Status UploadNow(std::function<absl::Status()> copy);

  const ExecutorParts parts_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Ops& ops_;
  const ExecutorLimits limits_;
  const RealClock clock_;
  Forward forward_;
  ExpertFeedForward experts_;
  OutputHead head_;
  SweepSteps steps_maker_;
  Buffer memory_;
  std::span<float> scratch_;
  std::unique_ptr<ActivationStore> activations_;
  std::unique_ptr<KvStaging> kv_staging_;
  std::unique_ptr<HostAttention> host_attention_;  // null without

  // Of the sweep that is being run.
  const SweepSchedule* schedule_ = nullptr;
  Sequences sequences_;
  std::vector<int32_t> ids_;        // of its rows
  std::vector<int32_t> positions_;  // of its rows
  std::vector<Step> steps_;
  size_t cursor_ = 0;
  bool piece_has_begun_ = false;
  absl::Status fault_;  // the first error; what is computed after it has no meaning
  // Shared with the works on lanes, which may outlive their place here.
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const StagedLayer>> staged_;
  // Places in the rings, by stream position: the host's and the one that ops read.
  std::map<int64_t, int64_t> host_places_;
  std::map<int64_t, int64_t> places_;

  std::unique_ptr<DiskQueue> disk_;  // of keys, values and activations; null when none are there
  // Last: ends what is on its way, which uses all of the above.
  StepLanes lanes_;
};

}  // namespace nightshift
