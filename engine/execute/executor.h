// Executor: runs the schedule of a sweep on a device.
//
// Layer by layer, within a layer batch by batch (the zig-zag order), so that each weight is used
// for the whole block before the next is needed; experts run over all batches of the sweep at once.
// The hidden rows of the whole sweep are kept between layers; scratch is bounded by one batch, and
// one more copy of the sweep's rows in models with experts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/execute/output_head.h"
#include "engine/execute/sequence.h"
#include "engine/memory/kv_cache.h"
#include "engine/memory/pool.h"
#include "engine/model/config.h"
#include "engine/model/expert_ffn.h"
#include "engine/model/forward.h"
#include "engine/model/weights.h"
#include "engine/schedule/sweep_schedule.h"
#include "kernels/ops.h"

namespace nightshift {

struct ExecutorLimits {
  int64_t max_sweep_tokens = 0;
  int64_t max_batch_tokens = 0;
};

// What a sweep found out.
struct SweepOutput {
  // For each of schedule.sampled, in order; nothing where the request wants no output.
  std::vector<std::optional<TokenLogprob>> sampled;
  // Of prompts whose log-probabilities are wanted: for each such span, in order, the tokens that
  // follow its rows, as far as they belong to the prompt.
  std::vector<TokenLogprob> scored;
};

// How many of the tokens that follow the span's rows are scored.
int64_t NumScored(const Span& span, const Sequence& sequence);

// Used by one thread; the ops spread the work.
class Executor {
 public:
  // Bytes that Create takes from the pool.
  static int64_t MemoryBytes(const ModelConfig& config, const ExecutorLimits& limits);

  // References must outlive this. `access` brings the weights that are not in memory, in sweeps of
  // one batch; null when all are. Errors: RESOURCE_EXHAUSTED (pool).
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const ModelConfig& config,
                                                          const ModelWeights& weights,
                                                          WeightAccess* access,
                                                          const KvCache& cache, Ops& ops,
                                                          const ExecutorLimits& limits, Pool& pool);

  // Computes the schedule's spans: keys and values go to the sequences' pages, which must have been
  // grown to hold them. Request indices of the schedule are indices in `sequences`; of these
  // nothing is changed but what an adjuster keeps for its next answer. Errors: INTERNAL naming a
  // request whose logits are not finite.
  absl::StatusOr<SweepOutput> Run(const SweepSchedule& schedule,
                                  std::span<const std::unique_ptr<Sequence>> sequences);

  // For tests: computes the schedule and returns the logits of all its rows, [num_rows, V].
  std::vector<float> ForwardLogits(const SweepSchedule& schedule,
                                   std::span<const std::unique_ptr<Sequence>> sequences);

 private:
  Executor(const ModelConfig& config, const ModelWeights& weights, WeightAccess* access,
           const KvCache& cache, Ops& ops, const ExecutorLimits& limits);

  void RunLayers(const SweepSchedule& schedule,
                 std::span<const std::unique_ptr<Sequence>> sequences);
  // The rows whose next token is one of the prompt that is to be reported.
  std::vector<HeadRow> ScoredRows(const SweepSchedule& schedule,
                                  std::span<const std::unique_ptr<Sequence>> sequences) const;
  void GatherTokens(const SweepSchedule& schedule,
                    std::span<const std::unique_ptr<Sequence>> sequences);
  void RunBatch(int64_t layer, const Batch& batch,
                std::span<const std::unique_ptr<Sequence>> sequences);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  ExecutorLimits limits_;
  Forward forward_;
  ExpertFeedForward experts_;
  OutputHead head_;
  Buffer memory_;
  MatrixView hidden_;  // [max_sweep_tokens, E]
  std::span<float> scratch_;
  std::vector<int32_t> ids_;        // of the sweep's rows
  std::vector<int32_t> positions_;  // of the sweep's rows
};

}  // namespace nightshift
