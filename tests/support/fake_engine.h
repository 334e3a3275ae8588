// FakeEngine: an Engine without a model. Its output is a pure function of prompt, seed and choice,
// so that a run that was disturbed can be compared with one that was not.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "kernels/base/mutex.h"

namespace nightshift {

// Prompts that begin with one of these are special.
inline constexpr int32_t kPoisonToken = 7;  // every sweep that holds it answers INTERNAL
inline constexpr int32_t kCrashToken = 8;   // every sweep that holds it ends the process by SIGKILL

// What each sweep says of its lanes: a read of so many bytes that computing waits for. "read 93 %".
inline constexpr int64_t kFakeSweepUs = 100;
inline constexpr int64_t kFakeReadUs = 93;
inline constexpr int64_t kFakeWaitedUs = 52;
inline constexpr int64_t kFakeComputeUs = 41;
inline constexpr int64_t kFakeReadBytes = 1000;

// What the engine gives for this prompt: the whole completion.
struct FakeCompletion {
  std::vector<int32_t> sampled;
  int64_t kept_tokens = 0;
  std::string text;
  FinishReason finish_reason = FinishReason::kNone;
};
FakeCompletion CompleteFake(const std::vector<int32_t>& prompt, const SamplingParams& sampling,
                            int64_t context_tokens);

// What a test sees and commands of the engines that its factory makes. Thread-safe.
class FakeEngineControl {
 public:
  struct Created {
    std::string pack_path;
    ComputeType compute_type = ComputeType::kF32;
    std::optional<DType> kv_type = {};
    int64_t memory_budget_bytes = 0;
  };

  // Sweeps wait at their beginning until they are allowed.
  void HoldSweeps();
  void AllowSweeps(int64_t count);
  // Lets a sweep that waits go on; the next one waits again.
  void AllowHeldSweep();
  void ReleaseSweeps();
  // Waits until a sweep waits.
  void WaitForHeldSweep();

  // The next engines to be created, or sweeps, answer with these, one each.
  void FailNextCreates(std::vector<absl::Status> statuses);
  void FailNextSweeps(std::vector<absl::Status> statuses);
  void FailNextPlans(std::vector<absl::Status> statuses);
  // The present engine answers Health with this, the next one is well.
  void EndEngine(absl::Status how);

  std::vector<Created> created();
  // The block of each plan that was applied or refused.
  std::vector<int64_t> planned_blocks();
  int64_t num_sweeps();
  int64_t most_held();

 private:
  friend class FakeEngine;
  absl::Status OnCreate(const EngineOptions& options);
  absl::Status OnSweep(int64_t held);
  absl::Status OnPlan(const EngineOptions& options);
  absl::Status OnHealth();

  Mutex mutex_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t allowed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::Status> create_faults_ ABSL_GUARDED_BY(mutex_);
  std::deque<absl::Status> sweep_faults_ ABSL_GUARDED_BY(mutex_);
  std::deque<absl::Status> plan_faults_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> planned_blocks_ ABSL_GUARDED_BY(mutex_);
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
  std::vector<Created> created_ ABSL_GUARDED_BY(mutex_);
  int64_t num_sweeps_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t most_held_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct FakeEngineOptions {
  int64_t context_tokens = 256;  // as the tiny packs say, whose limits the daemon checks
  int64_t vocabulary = 331;
  int64_t page_positions = 32;
  int64_t budget_pages = 1 << 20;
  bool crashes = true;  // false: kCrashToken is a token as others, where the engine has no process
};

// Takes compute type and max_block_requests from the engine's options.
class FakeEngine : public Engine {
 public:
  // `control` must outlive the engine; nullptr for none.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        const FakeEngineOptions& fake,
                                                        FakeEngineControl* control);

  absl::Status Health() override;
  const EngineInfo& info() const override { return info_; }
  EngineUsage Usage() const override { return {}; }
  std::vector<AdmitOutcome> Admit(std::vector<EngineRequest> requests) override;
  absl::StatusOr<SweepResult> Sweep() override;
  std::vector<EngineRequest> Suspend(const std::vector<uint64_t>& ids) override;
  void Retire(const std::vector<uint64_t>& ids) override;
  // Takes max_block_requests; the youngest beyond it are suspended.
  absl::StatusOr<std::vector<EngineRequest>> ApplyPlan(const EngineOptions& options) override;
  int64_t num_held() const override { return static_cast<int64_t>(held_.size()); }

 private:
  struct Held {
    EngineRequest request;
    FakeCompletion completion;
    bool prompt_done = false;
  };

  FakeEngine(EngineInfo info, bool crashes, FakeEngineControl* control)
      : info_(std::move(info)), crashes_(crashes), control_(control) {}
  absl::Status AdmitOne(EngineRequest request);
  int64_t PagesOf(const EngineRequest& request, int64_t more_tokens) const;
  int64_t HeldPages(int64_t more_tokens) const;
  absl::Status MeetMagicPrompts() const;
  SweepRecord Advance(Held& held) const;
  void AddTimes(SweepResult& result);

  EngineInfo info_;
  const bool crashes_;
  FakeEngineControl* const control_;
  std::vector<Held> held_;  // in order of admission
  int64_t now_us_ = 0;      // of the sweeps' times
};

}  // namespace nightshift
