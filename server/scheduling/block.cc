#include "server/scheduling/block.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "server/input/row_error.h"
#include "server/scheduling/block_former.h"
#include "server/scheduling/progress.h"

namespace nightshift {
namespace {

int64_t KnownTokens(const BlockRow& row) {
  return row.prompt_tokens + static_cast<int64_t>(row.generated.size());
}

}  // namespace

FinishedRow FailRow(const std::string& job_id, const ResultHeader& header,
                    const absl::Status& error) {
  return {.job_id = job_id,
          .index = header.index,
          .outcome = RowState::kFailed,
          .body = BuildErrorResult(header, error)};
}

void Block::Add(PreparedRow prepared) {
  WaitingRow waiting;
  waiting.row = {.job = std::move(prepared.job),
                 .header = std::move(prepared.header),
                 .attempt = prepared.row.attempt,
                 .prompt_tokens = static_cast<int64_t>(prepared.request.prompt.size()),
                 .seed = prepared.request.sampling.seed,
                 .want_logprobs = prepared.request.sampling.want_logprobs,
                 .generated = {}};
  waiting.request = std::move(prepared.request);
  waiting.request.id = next_id_++;
  if (!prepared.row.progress.empty()) {
    RestoreProgress(prepared.row.progress, waiting);
  }
  waiting_.push_back(std::move(waiting));
}

void Block::RestoreProgress(const std::string& stored, WaitingRow& waiting) const {
  absl::StatusOr<RequestProgress> progress = ParseProgress(stored);
  const EngineInfo& info = session_.engine->info();
  if (!progress.ok() || progress->model_digest != info.model_digest ||
      progress->numeric_mode != info.numeric_mode ||
      progress->has_logprobs != waiting.row.want_logprobs) {
    LOG(WARNING) << "progress_dropped job=" << waiting.row.job->job_id
                 << " index=" << waiting.row.header.index;
    return;
  }
  for (const TokenLogprob& token : progress->generated) {
    waiting.request.generated.push_back(token.token);
  }
  if (progress->has_logprobs) {
    waiting.request.generated_logprobs = progress->generated;
  }
  waiting.row.generated = std::move(progress->generated);
}

std::vector<size_t> Block::ChooseJoining() const {
  const EngineInfo& info = session_.engine->info();
  BlockRoom room = {.max_requests = info.max_block_requests,
                    .held_requests = num_held(),
                    .free_pages = info.kv_budget_pages,
                    .needs = info.kv_needs};
  for (const auto& [id, row] : held_) {
    room.held_attempt = std::max(room.held_attempt, row.attempt);
    room.free_pages -= room.needs.Most(KnownTokens(row) + 1);
  }
  std::vector<BlockCandidate> candidates;
  for (const WaitingRow& waiting : waiting_) {
    candidates.push_back({.priority = waiting.row.job->priority,
                          .job_create_time_us = waiting.row.job->create_time_us,
                          .index = waiting.row.header.index,
                          .attempt = waiting.row.attempt,
                          .known_tokens = KnownTokens(waiting.row)});
  }
  return FormBlock(candidates, room);
}

int64_t Block::waiting_tokens() const {
  int64_t tokens = 0;
  for (const WaitingRow& waiting : waiting_) {
    tokens += KnownTokens(waiting.row);
  }
  return tokens;
}

void Block::Admit(std::vector<FinishedRow>& finished) {
  while (Offer(finished)) {
  }
}

bool Block::Offer(std::vector<FinishedRow>& finished) {
  const std::vector<size_t> joining = ChooseJoining();
  if (joining.empty()) {
    return false;
  }
  // Copies: the engine keeps what it admits and drops what it refuses.
  std::vector<EngineRequest> requests;
  for (const size_t i : joining) {
    requests.push_back(waiting_[i].request);
  }
  const std::vector<AdmitOutcome> outcomes = session_.engine->Admit(std::move(requests));
  CHECK_EQ(outcomes.size(), joining.size());
  std::vector<bool> left(waiting_.size(), false);
  bool anew = false;
  for (size_t i = 0; i < joining.size(); ++i) {
    const absl::Status& status = outcomes[i].status;
    const bool gone = TakeOutcome(waiting_[joining[i]], status, finished);
    left[joining[i]] = gone;
    anew = anew || (!gone && absl::IsInvalidArgument(status));
  }
  std::vector<WaitingRow> stay;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (!left[i]) {
      stay.push_back(std::move(waiting_[i]));
    }
  }
  waiting_ = std::move(stay);
  return anew;
}

bool Block::TakeOutcome(WaitingRow& waiting, const absl::Status& status,
                        std::vector<FinishedRow>& finished) {
  BlockRow& row = waiting.row;
  if (status.ok()) {
    held_.emplace(waiting.request.id, std::move(row));
    return true;
  }
  // An engine that holds nothing and has no room will not have it later either.
  if (absl::IsResourceExhausted(status) && !held_.empty()) {
    return false;
  }
  if (absl::IsInvalidArgument(status) && !waiting.request.generated.empty()) {
    LOG(WARNING) << "progress_refused job=" << row.job->job_id << " index=" << row.header.index;
    waiting.request.generated.clear();
    waiting.request.generated_logprobs.clear();
    row.generated.clear();
    return false;
  }
  finished.push_back(FailRow(
      row.job->job_id, row.header,
      RowError(reason::kPromptTooLong, row_code::kTooLong, "", std::string(status.message()))));
  return true;
}

absl::StatusOr<SweepTokens> Block::Sweep(std::vector<FinishedRow>& finished) {
  absl::StatusOr<SweepResult> result = session_.engine->Sweep();
  if (!result.ok()) {
    return result.status();
  }
  for (SweepRecord& record : result->records) {
    TakeRecord(std::move(record), finished);
  }
  for (EngineRequest& request : result->evicted) {
    const auto found = held_.find(request.id);
    CHECK(found != held_.end());
    waiting_.push_back({.row = std::move(found->second), .request = std::move(request)});
    held_.erase(found);
  }
  return SweepTokens{.prompt = result->prompt_tokens, .output = result->output_tokens};
}

void Block::TakeRecord(SweepRecord record, std::vector<FinishedRow>& finished) {
  const auto found = held_.find(record.id);
  CHECK(found != held_.end());
  BlockRow& row = found->second;
  row.generated.push_back(std::move(record.token));
  if (record.finished) {
    finished.push_back(Complete(row, std::move(record)));
    held_.erase(found);
  }
}

FinishedRow Block::Complete(const BlockRow& row, SweepRecord record) const {
  const EngineInfo& info = session_.engine->info();
  CHECK_LE(record.kept_tokens, static_cast<int64_t>(row.generated.size()));
  CompletionOutcome outcome;
  outcome.text = std::move(record.text);
  outcome.kept.assign(row.generated.begin(), row.generated.begin() + record.kept_tokens);
  outcome.want_logprobs = row.want_logprobs;
  outcome.finish_reason = record.finish_reason;
  outcome.stop_reason = std::move(record.stop_reason);
  outcome.prompt_tokens = row.prompt_tokens;
  outcome.output_tokens = static_cast<int64_t>(row.generated.size());
  outcome.seed = row.seed;
  outcome.attempt = row.attempt;
  outcome.model_digest = info.model_digest;
  outcome.numeric_mode = info.numeric_mode;
  outcome.model = session_.key.model;
  return {.job_id = row.job->job_id,
          .index = row.header.index,
          .outcome = RowState::kSucceeded,
          .body = BuildCompletionResult(row.header, outcome, session_.text->encoder->tokenizer()),
          .prompt_tokens = outcome.prompt_tokens,
          .output_tokens = outcome.output_tokens};
}

std::vector<BlockRow> Block::TakeJob(const std::string& job_id) {
  std::vector<BlockRow> rows;
  std::vector<uint64_t> ids;
  for (auto entry = held_.begin(); entry != held_.end();) {
    if (entry->second.job->job_id != job_id) {
      ++entry;
      continue;
    }
    ids.push_back(entry->first);
    rows.push_back(std::move(entry->second));
    entry = held_.erase(entry);
  }
  session_.engine->Retire(ids);
  std::erase_if(waiting_, [&](WaitingRow& waiting) {
    const bool of_job = waiting.row.job->job_id == job_id;
    if (of_job) {
      rows.push_back(std::move(waiting.row));
    }
    return of_job;
  });
  return rows;
}

std::vector<BlockRow> Block::TakeHeld() {
  std::vector<BlockRow> rows;
  std::vector<uint64_t> ids;
  for (auto& [id, row] : held_) {
    ids.push_back(id);
    rows.push_back(std::move(row));
  }
  held_.clear();
  session_.engine->Retire(ids);
  return rows;
}

std::vector<BlockRow> Block::TakeAll() {
  std::vector<BlockRow> rows = TakeHeld();
  for (WaitingRow& waiting : waiting_) {
    rows.push_back(std::move(waiting.row));
  }
  waiting_.clear();
  return rows;
}

RowProgress Block::ProgressOf(const BlockRow& row) const {
  RowProgress progress = {.job_id = row.job->job_id, .index = row.header.index, .progress = {}};
  if (!row.generated.empty()) {
    const EngineInfo& info = session_.engine->info();
    progress.progress = SerializeProgress({.model_digest = info.model_digest,
                                           .numeric_mode = info.numeric_mode,
                                           .has_logprobs = row.want_logprobs,
                                           .generated = row.generated});
  }
  return progress;
}

std::vector<RowProgress> Block::Progress() const {
  std::vector<RowProgress> rows;
  for (const auto& [id, row] : held_) {
    if (!row.generated.empty()) {
      rows.push_back(ProgressOf(row));
    }
  }
  for (const WaitingRow& waiting : waiting_) {
    if (!waiting.row.generated.empty()) {
      rows.push_back(ProgressOf(waiting.row));
    }
  }
  return rows;
}

}  // namespace nightshift
