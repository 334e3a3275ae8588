#include "tests/support/fake_engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <signal.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// splitmix64.
uint64_t Mix(uint64_t state) {
  state += 0x9E3779B97F4A7C15U;
  state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27U)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31U);
}

// One token in 23 is the model's own end.
constexpr uint64_t kEndOneIn = 23;
constexpr int32_t kEndToken = 2;

TokenLogprob WithLogprob(int32_t token) {
  return {.token = token,
          .logprob = -static_cast<float>(token) / 64.0F,
          .top = {{.token = token, .logprob = -static_cast<float>(token) / 64.0F}}};
}

}  // namespace

FakeCompletion CompleteFake(const std::vector<int32_t>& prompt, const SamplingParams& sampling,
                            int64_t context_tokens) {
  uint64_t state = Mix(sampling.seed + 1000 * uint64_t{sampling.choice});
  for (const int32_t token : prompt) {
    state = Mix(state ^ static_cast<uint64_t>(token));
  }
  const int64_t limit =
      std::min(sampling.max_output_tokens, context_tokens - static_cast<int64_t>(prompt.size()));
  FakeCompletion completion;
  for (int64_t i = 0; i < limit; ++i) {
    state = Mix(state);
    if (state % kEndOneIn == 0) {
      completion.sampled.push_back(kEndToken);
      completion.finish_reason = FinishReason::kStop;
      return completion;
    }
    const int32_t token = static_cast<int32_t>(3 + state % 900);
    completion.sampled.push_back(token);
    completion.kept_tokens = i + 1;
    absl::StrAppend(&completion.text, "w", token, " ");
  }
  completion.finish_reason = FinishReason::kLength;
  return completion;
}

void FakeEngineControl::HoldSweeps() {
  MutexLock lock(mutex_);
  holding_ = true;
}

void FakeEngineControl::AllowSweeps(int64_t count) {
  MutexLock lock(mutex_);
  allowed_ += count;
  waiting_ = false;
  changed_.NotifyAll();
}

void FakeEngineControl::AllowHeldSweep() {
  MutexLock lock(mutex_);
  if (waiting_) {
    waiting_ = false;
    allowed_ = 1;
    changed_.NotifyAll();
  }
}

void FakeEngineControl::ReleaseSweeps() {
  MutexLock lock(mutex_);
  holding_ = false;
  changed_.NotifyAll();
}

void FakeEngineControl::WaitForHeldSweep() {
  MutexLock lock(mutex_);
  while (!waiting_) {
    changed_.Wait(mutex_);
  }
}

void FakeEngineControl::FailNextCreates(std::vector<absl::Status> statuses) {
  MutexLock lock(mutex_);
  create_faults_.assign(statuses.begin(), statuses.end());
}

void FakeEngineControl::FailNextSweeps(std::vector<absl::Status> statuses) {
  MutexLock lock(mutex_);
  sweep_faults_.assign(statuses.begin(), statuses.end());
}

void FakeEngineControl::FailNextPlans(std::vector<absl::Status> statuses) {
  MutexLock lock(mutex_);
  plan_faults_.assign(statuses.begin(), statuses.end());
}

std::vector<int64_t> FakeEngineControl::planned_blocks() {
  MutexLock lock(mutex_);
  return planned_blocks_;
}

void FakeEngineControl::EndEngine(absl::Status how) {
  MutexLock lock(mutex_);
  health_ = std::move(how);
}

std::vector<FakeEngineControl::Created> FakeEngineControl::created() {
  MutexLock lock(mutex_);
  return created_;
}

int64_t FakeEngineControl::num_sweeps() {
  MutexLock lock(mutex_);
  return num_sweeps_;
}

int64_t FakeEngineControl::most_held() {
  MutexLock lock(mutex_);
  return most_held_;
}

absl::Status FakeEngineControl::OnCreate(const EngineOptions& options) {
  MutexLock lock(mutex_);
  if (!create_faults_.empty()) {
    absl::Status fault = create_faults_.front();
    create_faults_.pop_front();
    RETURN_IF_ERROR(fault);
  }
  health_ = absl::OkStatus();
  created_.push_back({.pack_path = options.pack_path,
                      .compute_type = options.compute_type,
                      .kv_type = options.kv_type,
                      .memory_budget_bytes = options.memory_budget_bytes});
  return absl::OkStatus();
}

absl::Status FakeEngineControl::OnPlan(const EngineOptions& options) {
  MutexLock lock(mutex_);
  planned_blocks_.push_back(options.max_block_requests);
  if (plan_faults_.empty()) {
    return absl::OkStatus();
  }
  absl::Status fault = plan_faults_.front();
  plan_faults_.pop_front();
  return fault;
}

absl::Status FakeEngineControl::OnSweep(int64_t held) {
  MutexLock lock(mutex_);
  ++num_sweeps_;
  most_held_ = std::max(most_held_, held);
  while (holding_ && allowed_ == 0) {
    waiting_ = true;
    changed_.NotifyAll();
    changed_.Wait(mutex_);
  }
  waiting_ = false;
  allowed_ -= holding_ ? 1 : 0;
  if (sweep_faults_.empty()) {
    return absl::OkStatus();
  }
  absl::Status fault = sweep_faults_.front();
  sweep_faults_.pop_front();
  return fault;
}

absl::Status FakeEngineControl::OnHealth() {
  MutexLock lock(mutex_);
  return health_;
}

absl::StatusOr<std::unique_ptr<Engine>> FakeEngine::Create(const EngineOptions& options,
                                                           const FakeEngineOptions& fake,
                                                           FakeEngineControl* control) {
  if (control != nullptr) {
    RETURN_IF_ERROR(control->OnCreate(options));
  }
  EngineInfo info = {
      .model_digest = "fake",
      .numeric_mode = absl::StrCat(options.NumericMode(), "/fake"),
      .device = "fake device",
      .context_tokens = fake.context_tokens,
      .vocabulary = fake.vocabulary,
      .max_block_requests = options.max_block_requests,
      .kv_budget_pages = fake.budget_pages,
      .kv_needs = {.page_positions = fake.page_positions},
  };
  return std::unique_ptr<Engine>(new FakeEngine(std::move(info), fake.crashes, control));
}

absl::Status FakeEngine::Health() {
  return control_ == nullptr ? absl::OkStatus() : control_->OnHealth();
}

std::vector<AdmitOutcome> FakeEngine::Admit(std::vector<EngineRequest> requests) {
  std::vector<AdmitOutcome> outcomes;
  for (EngineRequest& request : requests) {
    const uint64_t id = request.id;
    const bool is_behind = !outcomes.empty() && absl::IsResourceExhausted(outcomes.back().status);
    outcomes.push_back(
        {.id = id, .status = is_behind ? outcomes.back().status : AdmitOne(std::move(request))});
  }
  return outcomes;
}

absl::Status FakeEngine::AdmitOne(EngineRequest request) {
  CHECK(!request.prompt.empty());
  FakeCompletion completion = CompleteFake(request.prompt, request.sampling, info_.context_tokens);
  if (PagesOf(request, request.sampling.max_output_tokens) > info_.kv_budget_pages) {
    return absl::InvalidArgumentError("the request needs more than the whole budget of pages");
  }
  const bool only_scores = request.sampling.max_output_tokens == 0;
  if ((!only_scores && request.generated.size() >= completion.sampled.size()) ||
      !std::equal(request.generated.begin(), request.generated.end(), completion.sampled.begin())) {
    return absl::InvalidArgumentError("what was generated before is not of this prompt and seed");
  }
  if (num_held() >= info_.max_block_requests ||
      HeldPages(1) + PagesOf(request, 1) > info_.kv_budget_pages) {
    return absl::ResourceExhaustedError("no room now");
  }
  held_.push_back({.request = std::move(request), .completion = std::move(completion)});
  return absl::OkStatus();
}

int64_t FakeEngine::PagesOf(const EngineRequest& request, int64_t more_tokens) const {
  const int64_t tokens =
      std::min(static_cast<int64_t>(request.prompt.size() + request.generated.size()) + more_tokens,
               info_.context_tokens);
  return info_.kv_needs.Most(tokens);
}

int64_t FakeEngine::HeldPages(int64_t more_tokens) const {
  int64_t pages = 0;
  for (const Held& held : held_) {
    pages += PagesOf(held.request, more_tokens);
  }
  return pages;
}

absl::Status FakeEngine::MeetMagicPrompts() const {
  for (const Held& held : held_) {
    if (crashes_ && held.request.prompt[0] == kCrashToken) {
      raise(SIGKILL);
    }
    if (held.request.prompt[0] == kPoisonToken) {
      return absl::InternalError("the device stumbled over a poisonous prompt");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SweepResult> FakeEngine::Sweep() {
  if (control_ != nullptr) {
    RETURN_IF_ERROR(control_->OnSweep(num_held()));
  }
  RETURN_IF_ERROR(MeetMagicPrompts());
  SweepResult result;
  AddTimes(result);
  while (num_held() > 1 && HeldPages(1) > info_.kv_budget_pages) {
    result.evicted.push_back(std::move(held_.back().request));
    held_.pop_back();
  }
  for (Held& held : held_) {
    if (!held.prompt_done) {
      held.prompt_done = true;
      result.prompt_tokens += static_cast<int64_t>(held.request.prompt.size());
      result.spans.push_back({.num_tokens = static_cast<int64_t>(held.request.prompt.size())});
    } else {
      result.spans.push_back({.first_position = static_cast<int64_t>(
                                  held.request.prompt.size() + held.request.generated.size() - 1),
                              .num_tokens = 1});
    }
    result.records.push_back(Advance(held));
    result.output_tokens += result.records.back().token.has_value() ? 1 : 0;
  }
  std::erase_if(held_, [](const Held& held) {
    return held.request.generated.size() == held.completion.sampled.size();
  });
  return result;
}

void FakeEngine::AddTimes(SweepResult& result) {
  const int64_t end_us = now_us_ + kFakeSweepUs;
  result.steps = {{.kind = StepKind::kReadWeights,
                   .lane = LaneId::kRead,
                   .bytes = kFakeReadBytes,
                   .issue_us = now_us_,
                   .start_us = now_us_,
                   .end_us = now_us_ + kFakeReadUs,
                   .waited_us = kFakeWaitedUs},
                  {.kind = StepKind::kCompute,
                   .lane = LaneId::kCompute,
                   .issue_us = now_us_,
                   .start_us = end_us - kFakeComputeUs,
                   .end_us = end_us}};
  result.times = Summarise(result.steps, now_us_, end_us);
  now_us_ = end_us;
}

SweepRecord FakeEngine::Advance(Held& held) const {
  EngineRequest& request = held.request;
  const FakeCompletion& completion = held.completion;
  SweepRecord record;
  record.id = request.id;
  if (!completion.sampled.empty()) {
    record.token = WithLogprob(completion.sampled[request.generated.size()]);
    request.generated.push_back(record.token->token);
    request.generated_logprobs.push_back(*record.token);
  }
  if (request.generated.size() == completion.sampled.size()) {
    record.finished = true;
    record.finish_reason = completion.finish_reason;
    record.text = completion.text;
    record.kept_tokens = completion.kept_tokens;
    record.shared_tokens = static_cast<int64_t>(request.prompt.size()) / 2;
    if (request.sampling.prompt_logprobs.has_value()) {
      std::transform(request.prompt.begin() + request.sampling.scored_from, request.prompt.end(),
                     std::back_inserter(record.prompt_logprobs), WithLogprob);
      std::transform(request.sampling.last_token_rivals.begin(),
                     request.sampling.last_token_rivals.end(),
                     std::back_inserter(record.prompt_logprobs), WithLogprob);
    }
  }
  return record;
}

std::vector<EngineRequest> FakeEngine::Suspend(const std::vector<uint64_t>& ids) {
  std::vector<EngineRequest> suspended;
  std::erase_if(held_, [&](Held& held) {
    const bool wanted = std::find(ids.begin(), ids.end(), held.request.id) != ids.end();
    if (wanted) {
      suspended.push_back(std::move(held.request));
    }
    return wanted;
  });
  return suspended;
}

void FakeEngine::Retire(const std::vector<uint64_t>& ids) {
  Suspend(ids);
}

absl::StatusOr<std::vector<EngineRequest>> FakeEngine::ApplyPlan(const EngineOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  if (control_ != nullptr) {
    RETURN_IF_ERROR(control_->OnPlan(options));
  }
  info_.max_block_requests = options.max_block_requests;
  std::vector<uint64_t> beyond;
  for (size_t i = static_cast<size_t>(options.max_block_requests); i < held_.size(); ++i) {
    beyond.push_back(held_[i].request.id);
  }
  return Suspend(beyond);
}

}  // namespace nightshift
