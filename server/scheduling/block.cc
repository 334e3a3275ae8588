#include "server/scheduling/block.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/prompt_encoder.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/input/row_error.h"
#include "server/scheduling/progress.h"

namespace nightshift {
namespace {

constexpr double kMicro = 1e-6;

bool HasProgress(const BlockRow& row) {
  return std::any_of(row.choices.begin(), row.choices.end(),
                     [](const ChoiceProgress& choice) { return !choice.generated.empty(); });
}

// True when the last token ended the completion itself, not by its text.
bool EndsWithEndToken(const ChoiceProgress& choice) {
  const int64_t num_generated = static_cast<int64_t>(choice.generated.size());
  if (num_generated == 0 || choice.end->kept_tokens + 1 != num_generated) {
    return false;
  }
  const std::string& reason = choice.end->stop_reason;
  return reason.empty() || reason == absl::StrCat(choice.generated.back().token);
}

}  // namespace

FinishedRow FailRow(const JobContext& job, const ResultHeader& header, const absl::Status& error) {
  return {.job_id = job.job_id,
          .job_uid = job.uid,
          .index = header.index,
          .outcome = RowState::kFailed,
          .body = BuildErrorResult(header, error)};
}

BlockRow& Block::RowOf(const ChoiceKey& key) {
  const auto found = rows_.find(key.row);
  CHECK(found != rows_.end());
  return found->second;
}

const BlockRow& Block::RowOf(const ChoiceKey& key) const {
  const auto found = rows_.find(key.row);
  CHECK(found != rows_.end());
  return found->second;
}

int64_t Block::KnownTokens(const ChoiceKey& key) const {
  const BlockRow& row = RowOf(key);
  const size_t more = row.scored.empty() ? row.choices[key.choice].generated.size()
                                         : row.scored[key.choice].tokens.size();
  return row.prompt_tokens + static_cast<int64_t>(more);
}

void Block::Add(PreparedRow prepared) {
  BlockRow row = {.job = std::move(prepared.job),
                  .header = std::move(prepared.header),
                  .attempt = prepared.row.attempt,
                  .share_tag = prepared.share_tag,
                  .joined_us = 0,
                  .pages = HashPages(prepared.request.prompt),
                  .prompt_tokens = static_cast<int64_t>(prepared.request.prompt.size()),
                  .seed = prepared.request.sampling.seed,
                  .want_logprobs = prepared.request.sampling.want_logprobs,
                  .scored = std::move(prepared.scored),
                  .echoed_prompt = std::move(prepared.echoed_prompt),
                  .prompt_logprobs = {},
                  .choices = {}};
  row.choices.resize(static_cast<size_t>(prepared.num_choices));
  if (!prepared.row.progress.empty()) {
    RestoreProgress(prepared.row.progress, row);
  }
  const uint64_t key = next_row_++;
  for (size_t i = 0; i < row.choices.size(); ++i) {
    if (!row.choices[i].end.has_value() && SpeakerOf(row, i) == i) {
      waiting_.push_back({.key = {key, i}, .request = RequestOf(row, i, prepared.request)});
      waiting_.back().request.id = next_id_++;
    }
  }
  rows_.emplace(key, std::move(row));
}

size_t Block::SpeakerOf(const BlockRow& row, size_t choice) {
  const auto is_one_token = [](const ScoredContinuation& scored) {
    return scored.tokens.size() == 1;
  };
  if (row.scored.empty() || !is_one_token(row.scored[choice])) {
    return choice;
  }
  const auto first = std::find_if(row.scored.begin(), row.scored.end(), is_one_token);
  return static_cast<size_t>(first - row.scored.begin());
}

EngineRequest Block::RequestOf(const BlockRow& row, size_t choice, const EngineRequest& first) {
  EngineRequest request = first;
  request.sampling.choice = static_cast<uint32_t>(choice);
  if (!row.scored.empty()) {
    const std::vector<int32_t>& tokens = row.scored[choice].tokens;
    request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    for (size_t i = choice + 1; i < row.scored.size(); ++i) {
      if (SpeakerOf(row, i) == choice) {
        request.sampling.last_token_rivals.push_back(row.scored[i].tokens.front());
      }
    }
    return request;
  }
  if (choice > 0) {
    request.sampling.prompt_logprobs.reset();  // the first choice tells them for all
  }
  const std::vector<TokenLogprob>& generated = row.choices[choice].generated;
  for (const TokenLogprob& token : generated) {
    request.generated.push_back(token.token);
  }
  if (row.want_logprobs) {
    request.generated_logprobs = generated;
  }
  return request;
}

void Block::RestoreProgress(const std::string& stored, BlockRow& row) const {
  absl::StatusOr<RequestProgress> progress = ParseProgress(stored);
  const EngineInfo& info = session_.engine->info();
  const auto has_ended = [](const ChoiceProgress& choice) { return choice.end.has_value(); };
  if (!progress.ok() || progress->model_digest != info.model_digest ||
      progress->numeric_mode != info.numeric_mode ||
      progress->has_logprobs != row.keeps_logprobs() ||
      progress->choices.size() != row.choices.size() ||
      std::all_of(progress->choices.begin(), progress->choices.end(), has_ended)) {
    LOG(WARNING) << "progress_dropped job=" << row.job->job_id << " index=" << row.header.index;
    return;
  }
  for (size_t i = 0; i < row.scored.size(); ++i) {
    // What ended together is told together.
    const ChoiceProgress& speaker = progress->choices[SpeakerOf(row, i)];
    if (speaker.end.has_value() != progress->choices[i].end.has_value()) {
      LOG(WARNING) << "progress_dropped job=" << row.job->job_id << " index=" << row.header.index;
      return;
    }
  }
  row.prompt_logprobs = std::move(progress->prompt_logprobs);
  row.choices = std::move(progress->choices);
}

std::vector<size_t> Block::ChooseJoining() const {
  const EngineInfo& info = session_.engine->info();
  BlockRoom room = {.max_requests = info.max_block_requests, .held_requests = num_held()};
  for (const auto& [id, key] : held_) {
    room.held_attempt = std::max(room.held_attempt, RowOf(key).attempt);
  }
  // Jobs in order of age, for those whose tags are equal.
  std::map<std::pair<int64_t, std::string>, uint64_t> jobs;
  for (const WaitingChoice& waiting : waiting_) {
    const JobContext& job = *RowOf(waiting.key).job;
    jobs.try_emplace({job.create_time_us, job.job_id}, 0);
  }
  uint64_t number = 0;
  for (auto& [age, job] : jobs) {
    job = number++;
  }
  std::vector<BlockCandidate> candidates;
  for (const WaitingChoice& waiting : waiting_) {
    const JobContext& job = *RowOf(waiting.key).job;
    candidates.push_back(CandidateOf(waiting));
    candidates.back().job = jobs.at({job.create_time_us, job.job_id});
  }
  return FormBlock(candidates, room);
}

BlockCandidate Block::CandidateOf(const WaitingChoice& waiting) const {
  const BlockRow& row = RowOf(waiting.key);
  const int64_t output_tokens = lengths_.Predict(row.job->job_id, row.prompt_tokens,
                                                 waiting.request.sampling.max_output_tokens);
  return {.priority = row.job->priority,
          .share_tag = row.share_tag,
          .index = row.header.index,
          .choice = static_cast<int64_t>(waiting.key.choice),
          .attempt = row.attempt,
          .predicted_tokens = std::max(row.prompt_tokens + output_tokens, KnownTokens(waiting.key)),
          .pages = row.pages};
}

int64_t Block::held_tokens() const {
  int64_t tokens = 0;
  for (const auto& [id, key] : held_) {
    tokens += KnownTokens(key);
  }
  return tokens;
}

std::map<std::string, DoneTokens> Block::done_tokens() const {
  std::map<std::string, DoneTokens> done;
  for (const auto& [key, row] : rows_) {
    for (const ChoiceProgress& choice : row.choices) {
      if (row.scored.empty() && !choice.generated.empty()) {
        DoneTokens& of_job = done[row.job->job_id];
        of_job.prompt += row.prompt_tokens;
        of_job.output += static_cast<int64_t>(choice.generated.size());
      }
    }
  }
  return done;
}

int64_t Block::waiting_tokens() const {
  int64_t tokens = 0;
  for (const WaitingChoice& waiting : waiting_) {
    tokens += KnownTokens(waiting.key);
  }
  return tokens;
}

void Block::Admit(std::vector<FinishedRow>& finished) {
  do {
    while (Offer(finished)) {
    }
  } while (MakeRoom());
}

bool Block::MakeRoom() {
  int32_t priority = 0;
  int64_t wanted = 0;
  for (const WaitingChoice& waiting : waiting_) {
    const BlockRow& row = RowOf(waiting.key);
    if (row.attempt > 1) {
      return false;  // suspects wait for the others to end
    }
    wanted = row.job->priority > priority ? 0 : wanted;
    priority = std::max(priority, row.job->priority);
    wanted += row.job->priority == priority ? 1 : 0;
  }
  std::vector<BlockMember> held;
  std::vector<uint64_t> ids;
  for (const auto& [id, key] : held_) {
    const BlockRow& row = RowOf(key);
    if (row.attempt > 1) {
      return false;
    }
    held.push_back({.priority = row.job->priority, .computed_tokens = KnownTokens(key)});
    ids.push_back(id);
  }
  std::vector<uint64_t> leaving;
  for (const size_t i : ChooseToSuspend(held, priority, wanted)) {
    leaving.push_back(ids[i]);
  }
  if (leaving.empty()) {
    return false;
  }
  LOG(INFO) << "rows_make_room requests=" << leaving.size() << " for_priority=" << priority;
  std::vector<EngineRequest> left = session_.engine->Suspend(leaving);
  const bool made_room = !left.empty();  // not by an engine that has ended
  WaitAgain(std::move(left));
  return made_room;
}

void Block::WaitAgain(std::vector<EngineRequest> requests) {
  for (EngineRequest& request : requests) {
    const auto found = held_.find(request.id);
    CHECK(found != held_.end());
    waiting_.push_back({.key = found->second, .request = std::move(request)});
    held_.erase(found);
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
  std::vector<WaitingChoice> stay;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (!left[i] && rows_.count(waiting_[i].key.row) != 0) {
      stay.push_back(std::move(waiting_[i]));
    }
  }
  waiting_ = std::move(stay);
  return anew;
}

bool Block::TakeOutcome(WaitingChoice& waiting, const absl::Status& status,
                        std::vector<FinishedRow>& finished) {
  if (rows_.count(waiting.key.row) == 0) {  // another choice of the row was refused just before
    session_.engine->Retire({waiting.request.id});
    return true;
  }
  if (status.ok()) {
    TakeTurn(RowOf(waiting.key));
    NoteJoined(RowOf(waiting.key));
    held_.emplace(waiting.request.id, waiting.key);
    return true;
  }
  // An engine that holds nothing and has no room will not have it later either.
  if (absl::IsResourceExhausted(status) && !held_.empty()) {
    return false;
  }
  const BlockRow& row = RowOf(waiting.key);
  if (absl::IsInvalidArgument(status) && !waiting.request.generated.empty()) {
    LOG(WARNING) << "progress_refused job=" << row.job->job_id << " index=" << row.header.index;
    waiting.request.generated.clear();
    waiting.request.generated_logprobs.clear();
    ChoiceOf(waiting.key).generated.clear();
    return false;
  }
  finished.push_back(FailRow(
      *row.job, row.header,
      RowError(reason::kPromptTooLong, row_code::kTooLong, "", std::string(status.message()))));
  RetireRow(waiting.key.row);
  return true;
}

void Block::TakeTurn(BlockRow& row) {
  for (const WaitingChoice& waiting : waiting_) {
    const auto other = rows_.find(waiting.key.row);
    if (other != rows_.end() && other->second.job == row.job &&
        other->second.share_tag < row.share_tag) {
      std::swap(other->second.share_tag, row.share_tag);
    }
  }
  served_tag_ = std::max(served_tag_, row.share_tag);
}

void Block::NoteJoined(BlockRow& row) const {
  if (row.joined_us == 0) {
    row.joined_us = clock_.MonotonicMicros();
    metrics_.queue_seconds.Observe(
        kMicro * static_cast<double>(clock_.WallMicros() - row.job->create_time_us));
  }
}

void Block::RetireRow(uint64_t row) {
  std::vector<uint64_t> ids;
  for (const auto& [id, key] : held_) {
    if (key.row == row) {
      ids.push_back(id);
    }
  }
  for (const uint64_t id : ids) {
    held_.erase(id);
  }
  session_.engine->Retire(ids);
  rows_.erase(row);
}

absl::StatusOr<BlockSweep> Block::Sweep(std::vector<FinishedRow>& finished) {
  BlockSweep sweep;
  for (const auto& [id, key] : held_) {
    sweep.job_ids.insert(RowOf(key).job->job_id);
  }
  absl::StatusOr<SweepResult> result = session_.engine->Sweep();
  if (!result.ok()) {
    return result.status();
  }
  for (SweepRecord& record : result->records) {
    TakeRecord(std::move(record), finished);
  }
  WaitAgain(std::move(result->evicted));
  sweep.tokens = result->prompt_tokens + result->output_tokens;
  sweep.shared_tokens = result->shared_tokens;
  sweep.times = result->times;
  sweep.steps = std::move(result->steps);
  sweep.sampled_tokens = result->output_tokens;
  sweep.spans = std::move(result->spans);
  sweep.kv_pages = result->kv_pages;
  return sweep;
}

absl::Status Block::ApplyPlan(const EngineOptions& options) {
  ASSIGN_OR_RETURN(std::vector<EngineRequest> suspended, session_.engine->ApplyPlan(options));
  WaitAgain(std::move(suspended));
  return absl::OkStatus();
}

void Block::TakeRecord(SweepRecord record, std::vector<FinishedRow>& finished) {
  const auto found = held_.find(record.id);
  CHECK(found != held_.end());
  const ChoiceKey key = found->second;
  BlockRow& row = RowOf(key);
  ChoiceProgress& choice = row.choices[key.choice];
  if (record.token.has_value()) {
    choice.generated.push_back(*std::move(record.token));
  }
  if (!record.finished) {
    return;
  }
  lengths_.Learn(row.job->job_id, row.prompt_tokens, static_cast<int64_t>(choice.generated.size()));
  if (!row.scored.empty()) {
    TakeScores(std::exchange(record.prompt_logprobs, {}), key.choice, row);
    record.kept_tokens = static_cast<int64_t>(choice.generated.size());
  }
  CHECK_LE(record.kept_tokens, static_cast<int64_t>(choice.generated.size()));
  choice.end = ChoiceEnd{.finish_reason = record.finish_reason,
                         .stop_reason = std::move(record.stop_reason),
                         .text = std::move(record.text),
                         .kept_tokens = record.kept_tokens};
  if (key.choice == 0) {
    row.prompt_logprobs = std::move(record.prompt_logprobs);
    row.cached_tokens = record.shared_tokens;
  }
  held_.erase(found);
  if (std::all_of(row.choices.begin(), row.choices.end(),
                  [](const ChoiceProgress& one) { return one.end.has_value(); })) {
    finished.push_back(Complete(std::move(row)));
    rows_.erase(key.row);
  }
}

void Block::TakeScores(std::vector<TokenLogprob> tokens, size_t speaker, BlockRow& row) {
  const size_t own = row.scored[speaker].tokens.size();
  CHECK_GE(tokens.size(), own);
  size_t next = own;
  for (size_t i = speaker + 1; i < row.choices.size(); ++i) {
    if (SpeakerOf(row, i) == speaker) {
      CHECK_LT(next, tokens.size());
      row.choices[i].generated = {std::move(tokens[next++])};
      row.choices[i].end = ChoiceEnd{
          .finish_reason = FinishReason::kLength, .stop_reason = {}, .text = {}, .kept_tokens = 1};
    }
  }
  tokens.resize(own);
  row.choices[speaker].generated = std::move(tokens);
}

FinishedRow Block::Complete(BlockRow row) const {
  metrics_.request_seconds.Observe(
      kMicro * static_cast<double>(clock_.MonotonicMicros() - row.joined_us));
  const EngineInfo& info = session_.engine->info();
  CompletionOutcome outcome;
  for (size_t i = 0; i < row.scored.size(); ++i) {
    outcome.scored.push_back(
        {.text = std::move(row.scored[i].text), .kept = std::move(row.choices[i].generated)});
  }
  for (size_t i = 0; i < row.choices.size() && row.scored.empty(); ++i) {
    ChoiceProgress& choice = row.choices[i];
    outcome.output_tokens += static_cast<int64_t>(choice.generated.size());
    std::optional<TokenLogprob> end_token;
    if (row.echoed_prompt.has_value() && EndsWithEndToken(choice)) {
      end_token = choice.generated.back();
    }
    choice.generated.resize(static_cast<size_t>(choice.end->kept_tokens));
    outcome.choices.push_back({.text = std::move(choice.end->text),
                               .kept = std::move(choice.generated),
                               .end_token = std::move(end_token),
                               .finish_reason = choice.end->finish_reason,
                               .stop_reason = std::move(choice.end->stop_reason)});
  }
  outcome.want_logprobs = row.want_logprobs;
  outcome.prompt_logprobs = std::move(row.prompt_logprobs);
  outcome.echoed_prompt = std::move(row.echoed_prompt);
  outcome.prompt_tokens = row.prompt_tokens + ScoredTokens(row.scored);
  outcome.cached_tokens = row.cached_tokens;
  outcome.seed = row.seed;
  outcome.attempt = row.attempt;
  outcome.model_digest = info.model_digest;
  outcome.numeric_mode = info.numeric_mode;
  outcome.model = session_.key.model;
  return {.job_id = row.job->job_id,
          .job_uid = row.job->uid,
          .index = row.header.index,
          .outcome = RowState::kSucceeded,
          .body = BuildCompletionResult(row.header, outcome, session_.text->encoder->tokenizer()),
          .prompt_tokens = outcome.prompt_tokens,
          .output_tokens = outcome.output_tokens,
          .cached_tokens = outcome.cached_tokens};
}

std::vector<BlockRow> Block::TakeRows(const std::set<uint64_t>& keys) {
  std::vector<uint64_t> ids;
  std::erase_if(held_, [&](const auto& entry) {
    const bool taken = keys.count(entry.second.row) != 0;
    if (taken) {
      ids.push_back(entry.first);
    }
    return taken;
  });
  session_.engine->Retire(ids);
  std::erase_if(waiting_,
                [&](const WaitingChoice& waiting) { return keys.count(waiting.key.row) != 0; });
  std::vector<BlockRow> rows;
  for (const uint64_t key : keys) {
    rows.push_back(std::move(rows_.extract(key).mapped()));
  }
  return rows;
}

std::vector<BlockRow> Block::TakeJob(const std::string& job_id) {
  std::set<uint64_t> keys;
  for (const auto& [key, row] : rows_) {
    if (row.job->job_id == job_id) {
      keys.insert(key);
    }
  }
  return TakeRows(keys);
}

std::vector<BlockRow> Block::TakeHeld() {
  std::set<uint64_t> keys;
  for (const auto& [id, key] : held_) {
    keys.insert(key.row);
  }
  return TakeRows(keys);
}

std::vector<BlockRow> Block::TakeAll() {
  std::set<uint64_t> keys;
  for (const auto& [key, row] : rows_) {
    keys.insert(key);
  }
  return TakeRows(keys);
}

RowProgress Block::ProgressOf(const BlockRow& row) const {
  RowProgress progress = {.job_id = row.job->job_id,
                          .job_uid = row.job->uid,
                          .index = row.header.index,
                          .progress = {}};
  if (HasProgress(row)) {
    const EngineInfo& info = session_.engine->info();
    progress.progress = SerializeProgress({.model_digest = info.model_digest,
                                           .numeric_mode = info.numeric_mode,
                                           .has_logprobs = row.keeps_logprobs(),
                                           .prompt_logprobs = row.prompt_logprobs,
                                           .choices = row.choices});
  }
  return progress;
}

std::vector<RowProgress> Block::Progress() const {
  std::vector<RowProgress> rows;
  for (const auto& [key, row] : rows_) {
    if (HasProgress(row)) {
      rows.push_back(ProgressOf(row));
    }
  }
  return rows;
}

}  // namespace nightshift
