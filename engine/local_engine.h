// LocalEngine: the engine in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/execute/executor.h"
#include "engine/execute/sequence.h"
#include "engine/memory/kv_cache.h"
#include "engine/memory/pool.h"
#include "engine/memory/prefix_tree.h"
#include "engine/memory/resident_weights.h"
#include "engine/memory/weight_stream.h"
#include "engine/memory_plan.h"
#include "engine/model/config.h"
#include "engine/model/pack.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/clock.h"
#include "kernels/device.h"

namespace nightshift {

// Held requests stay in order of admission, which is their order of age. Used by one thread.
class LocalEngine : public Engine {
 public:
  // `options` are valid. Errors: as Engine::Create.
  static absl::StatusOr<std::unique_ptr<LocalEngine>> Create(const EngineOptions& options);

  const EngineInfo& info() const override { return info_; }
  EngineUsage Usage() const override;
  std::vector<AdmitOutcome> Admit(std::vector<EngineRequest> requests) override;
  absl::StatusOr<SweepResult> Sweep() override;
  std::vector<EngineRequest> Suspend(const std::vector<uint64_t>& ids) override;
  void Retire(const std::vector<uint64_t>& ids) override;
  absl::StatusOr<std::vector<EngineRequest>> ApplyPlan(const EngineOptions& options) override;
  int64_t num_held() const override { return static_cast<int64_t>(held_.size()); }

  // Experts that are read from disk; null when no weights are.
  const ExpertStream* expert_stream() const {
    return stream_ == nullptr ? nullptr : &stream_->experts();
  }
  // For tests: the logits [T, V] at every position of `tokens`, computed in sweeps of its own like
  // the prompt of a request. Nothing may be held.
  absl::StatusOr<std::vector<float>> ForwardLogits(const std::vector<int32_t>& tokens);

 private:
  explicit LocalEngine(std::unique_ptr<Pack> pack);

  // Makes all that is made of memory, anew where it was there. Nothing is held.
  absl::Status SetUp(const EngineOptions& options, MemoryPlan plan);
  void TearDown();
  absl::Status CreateParts();
  EngineInfo Describe() const;
  absl::Status CreateDevice();
  absl::Status AdmitOne(EngineRequest request);
  // EngineRequest::synthetic_context.
  absl::Status MakeUpContext(Sequence& sequence, int64_t num_tokens) const;
  absl::Status CheckRequest(const EngineRequest& request) const;
  absl::Status CheckSampling(const SamplingParams& sampling) const;
  absl::Status CheckRoom(const EngineRequest& request) const;
  absl::StatusOr<Completion> RebuildCompletion(const EngineRequest& request) const;
  // Whether it is computed in one sweep whose keys and values nothing reads later: a prompt that is
  // only scored, takes no pages of others and is no longer than a span.
  bool IsWhole(const EngineRequest& request) const;
  // KV pages that it holds at one time at most, and that are counted for it when it asks for room
  // or, held, when others do.
  int64_t MostPages(const EngineRequest& request) const;
  int64_t PagesToCommit(const EngineRequest& request) const;
  int64_t PagesCommitted(const Sequence& held) const;
  // The tokens of the prompt that leave one to compute and, before the first that is scored, its
  // row; nothing where nothing is shared.
  std::span<const int32_t> Shareable(const EngineRequest& request) const;
  // Takes pages that others have computed, from the oldest request on, and finds those that wait
  // for an older one to compute some. Returns the tokens taken.
  int64_t TakeSharedPages();
  int64_t OutputTokensLimit(int64_t prompt_tokens, const SamplingParams& sampling) const;

  // Whether the block takes no more requests until all of it have ended.
  bool IsClosed() const;
  SweepSchedule ScheduleHeld() const;
  void GrowPages(const SweepSchedule& schedule);
  static std::vector<ComputedSpan> ComputedSpans(const SweepSchedule& schedule);
  // Counts tokens whose keys and values are in the pages, offers them to others and gives back
  // pages behind the window.
  static void Advance(Sequence& sequence, int64_t num_tokens);
  // Tokens of the vocabulary that end a completion.
  std::vector<int32_t> EndTokens(const SamplingParams& sampling) const;
  void TakeScored(const SweepSchedule& schedule, std::vector<TokenLogprob> scored);
  static SweepRecord FinishScored(Sequence& sequence);
  static SweepRecord AppendToken(Sequence& sequence, TokenLogprob token);
  static EngineRequest TakeState(Sequence& sequence);

  const RealClock clock_;
  std::unique_ptr<Pack> pack_;
  const ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;  // null for a pack without one
  // Of the present plan:
  EngineOptions options_;
  MemoryPlan plan_;
  EngineInfo info_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pool> host_pool_;
  std::unique_ptr<Pool> own_device_pool_;  // null with unified memory
  std::unique_ptr<ResidentWeights> weights_;
  std::unique_ptr<WeightStream> stream_;  // null when all weights are on the device
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<PrefixTree> prefixes_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Sequence>> held_;
  SweepTimes times_;  // of all sweeps
};

}  // namespace nightshift
