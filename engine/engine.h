// Engine: the one door. Holds one model and a block of requests, and advances them sweep by sweep.
//
// Message-shaped: every call takes and returns plain values, no callbacks or shared pointers cross,
// so an engine can live in another process. One thread calls it (the runner).
//
// A request's life: Admit (its pages are reserved as it grows) -> Sweep, Sweep, ... each giving a
// token once its prompt is done -> finished (the last record says why) or Suspended to values and
// admitted again later, here or in another process, with the same text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/io/disk_queue.h"
#include "engine/memory/kv_layers.h"
#include "engine/sampling/sampling_params.h"
#include "engine/schedule/timeline.h"
#include "engine/tier_options.h"
#include "kernels/dtype.h"

namespace nightshift {

// Whether a number is a share of values that can be attended to: above 0, at most 1. NaN is none.
constexpr bool IsSparseAttention(double share) {
  return share > 0.0 && share <= 1.0;
}

struct EngineOptions {
  std::string pack_path;
  ComputeType compute_type = ComputeType::kBF16;
  // Of keys and values in pages, in every tier: kU4G64 or kU8G64, quantised as they are appended;
  // nothing: the compute type's own. Part of the numeric mode, like the compute type.
  std::optional<DType> kv_type;
  // In (0, 1]: of what a token behind its request's prompt attends to, the share of the values that
  // are added up (AttentionArgs::sparse_fraction in kernels/ops.h). 1: all. The prompt attends to
  // all. With scored_from the prompt ends there: what is scored gets what decoding would give it.
  // Part of the numeric mode.
  double sparse_attention = 1.0;
  int num_threads = 0;  // 0: one a core that the process may use
  // Weights, KV pages and scratch together; the pools are sized from it at start.
  int64_t memory_budget_bytes = int64_t{4} << 30;
  // Of that, for weights; what is left of the model is read from disk in every sweep. -1: all
  // weights where they fit with KV pages for one request, else half of what activations leave.
  int64_t weight_budget_bytes = -1;
  // Memory of weights on their way from disk.
  int64_t weight_ring_bytes = int64_t{64} << 20;
  // Nothing: io_uring where the kernel gives it, else threads.
  std::optional<DiskBackend> disk_backend;
  // Tokens of one sweep (all spans of all batches), at least max_block_requests: bounds
  // activations.
  int64_t max_sweep_tokens = 2048;
  // Tokens that a layer computes at one time (a batch): bounds scratch, so that it stays in caches.
  // Where weights are streamed a sweep is one batch, so that each shard is done with when it is
  // used.
  int64_t max_batch_tokens = 512;
  // Most prompt tokens of one request in a sweep; 0: no chunking beyond max_sweep_tokens.
  int64_t prompt_chunk_tokens = 512;
  // Most requests held at one time (the block).
  int64_t max_block_requests = 256;
  // Whether requests that begin alike (64 tokens and more) compute that part once and share its
  // pages. Changes no token.
  bool share_prefixes = true;
  TierOptions tiers;

  absl::Status Validate() const;
  // What fixes a request's tokens, beside the model: "bf16", "f32/kv int4/sparse 0.1".
  std::string NumericMode() const;
};

// What an engine can hold, fixed at Create.
struct EngineInfo {
  std::string model_digest;  // hex of the pack's digest
  // Compute type / keys and values, if packed / the share of values attended to, if not all / who
  // computes attention: "f32/device", "bf16/kv int4/sparse 0.1/device".
  std::string numeric_mode;
  std::string device;        // description for people
  int64_t context_tokens = 0;
  int64_t vocabulary = 0;
  int64_t max_block_requests = 0;
  int64_t kv_budget_pages = 0;
  KvPageNeeds kv_needs;               // pages that a request takes of those
  int64_t weight_bytes = 0;           // on the device
  int64_t host_weight_bytes = 0;      // beside it, uploaded in every sweep
  int64_t streamed_weight_bytes = 0;  // read from disk in every sweep
  int64_t kv_budget_bytes = 0;
};

// A request as it enters: fresh, or suspended before with what it had generated.
struct EngineRequest {
  uint64_t id = 0;                 // chosen by the caller, unique among those held
  std::vector<int32_t> prompt;     // not empty
  std::vector<int32_t> generated;  // ids generated before a suspension; continues after them
  std::vector<TokenLogprob> generated_logprobs;  // same length as generated, or empty: not needed
  SamplingParams sampling;
  // For benches only: the first so many known tokens, not all, count as computed. Their keys and
  // values are made up, so what comes after them costs what it should and means nothing.
  int64_t synthetic_context = 0;
};

struct AdmitOutcome {
  uint64_t id = 0;
  // OK; RESOURCE_EXHAUSTED (no room now, with asked, free and budget: come again after a sweep);
  // INVALID_ARGUMENT (can never run here: over the context, over the whole budget, id out of
  // range). Behind a request without room the others of the call get its status: nobody is passed
  // over for ever by smaller ones.
  absl::Status status;
};

// One sampled token, or the end of a request that only scored its prompt (max_output_tokens 0).
struct SweepRecord {
  uint64_t id = 0;
  std::optional<TokenLogprob> token;
  bool finished = false;
  // When finished: why, and the completion as published. Text, kept tokens and logprobs are
  // trimmed together: the stop string, and every token that reaches into it, is not part of them.
  FinishReason finish_reason = FinishReason::kNone;
  // The stop string, or the id of sampling.stop_tokens in decimal; empty for the model's own end
  // token and for kLength.
  std::string stop_reason;
  std::string text;         // valid UTF-8; empty for a pack without tokenizer
  int64_t kept_tokens = 0;  // how many of the generated tokens belong to the completion
  // With sampling.prompt_logprobs, when finished: one for each token of the prompt from
  // sampling.scored_from on, then for each of sampling.last_token_rivals, whatever happened to the
  // request meanwhile. The prompt's first has no log-probability: 0 and no alternatives.
  std::vector<TokenLogprob> prompt_logprobs;
  // When finished: tokens of the prompt that it took from others instead of computing them, since
  // it was admitted last.
  int64_t shared_tokens = 0;
};

// Positions of one request that a sweep computed in one of its batches.
struct ComputedSpan {
  int64_t batch = 0;
  int64_t first_position = 0;
  int64_t num_tokens = 0;
};

struct SweepResult {
  std::vector<SweepRecord> records;
  int64_t prompt_tokens = 0;        // computed in this sweep
  int64_t shared_tokens = 0;        // of prompts, taken from others before this sweep
  int64_t output_tokens = 0;        // sampled in this sweep
  std::vector<ComputedSpan> spans;  // batch by batch
  int64_t kv_pages = 0;             // that held requests used while it ran
  SweepTimes times;
  // Those that ended in this sweep, in order; reads of weights may have begun in the one before.
  std::vector<StepTimes> steps;
  // Requests sent back because KV pages ran out (youngest first); admit them again later.
  std::vector<EngineRequest> evicted;
};

// What an engine has used since Create.
struct EngineUsage {
  int64_t disk_read_bytes = 0;
  int64_t disk_busy_us = 0;         // during which at least one read was on its way
  int64_t disk_wait_us = 0;         // during which computing stood still for the disk
  int64_t memory_bytes = 0;         // taken from the budget
  int64_t device_memory_bytes = 0;  // of a device with memory of its own, from its budget
  int64_t kv_pages = 0;             // that held requests use at this moment
  SweepTimes times;                 // of all sweeps
};

class Engine {
 public:
  // Loads the pack. Errors: NOT_FOUND, DATA_LOSS (checksum, with shard and offset),
  // RESOURCE_EXHAUSTED (budget too small for the weights and one request, with numbers),
  // UNAVAILABLE (no room on the disk for keys, values and activations: come later).
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  virtual ~Engine() = default;

  // OK, or how the engine ended, which one in another process does by itself: of no use then.
  virtual absl::Status Health() { return absl::OkStatus(); }
  virtual const EngineInfo& info() const = 0;
  virtual EngineUsage Usage() const = 0;
  virtual std::vector<AdmitOutcome> Admit(std::vector<EngineRequest> requests) = 0;
  // Advances every held request by its span. A finished request has left the engine and its pages
  // are free when this returns. An error concerns the whole block: nothing of it was sampled.
  // Errors: INTERNAL (logits that are not finite, with the request; a device's fault), DATA_LOSS (a
  // shard is not what was imported), FAILED_PRECONDITION (the disk cannot read it). Of no use then.
  virtual absl::StatusOr<SweepResult> Sweep() = 0;
  // Takes requests out with their state; unknown ids are skipped.
  virtual std::vector<EngineRequest> Suspend(const std::vector<uint64_t>& ids) = 0;
  // Drops requests (cancelled): their pages are free at once. Unknown ids are skipped.
  virtual void Retire(const std::vector<uint64_t>& ids) = 0;
  // Shares the memory anew: other budgets, shares, block or schedule for the same pack and numeric
  // mode, which are `options`' too. Held requests go on with the same text, their keys and values
  // rebuilt by prefill; those that have no room now are returned, suspended.
  // Errors: INVALID_ARGUMENT and RESOURCE_EXHAUSTED for options that do not fit, with numbers: all
  // is as before. Any other (as Create): of no use then.
  virtual absl::StatusOr<std::vector<EngineRequest>> ApplyPlan(const EngineOptions& options) = 0;
  virtual int64_t num_held() const = 0;
};

// Engine::Create, or what makes an engine elsewhere or a fake one. Errors: as Engine::Create.
using EngineFactory =
    std::function<absl::StatusOr<std::unique_ptr<Engine>>(const EngineOptions& options)>;

}  // namespace nightshift
