#include "server/store/sqlite_writer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/store/sqlite_schema.h"

namespace nightshift {
namespace {

constexpr int64_t kNoRow = -1;

// What a job that has not begun waits for.
JobState WaitingState(const JobRecord& job) {
  return job.checked < job.counts.total ? JobState::kValidating : JobState::kQueued;
}

bool IsPending(int64_t row_state) {
  return row_state == static_cast<int64_t>(RowState::kPending) || row_state == kRowReturned;
}

// Ends the job when its last row has ended.
void EndIfDone(JobRecord& job, int64_t now_us) {
  if (job.counts.pending + job.counts.running > 0 || IsTerminal(job.state)) {
    return;
  }
  job.state = job.state == JobState::kCancelling ? job.end_state : JobState::kSucceeded;
  job.end_time_us = now_us;
}

absl::Status NoSuchJob(const std::string& job_id) {
  return absl::NotFoundError(absl::StrCat("job ", job_id, " does not exist"));
}

absl::Status HasEnded(const JobRecord& job, absl::string_view tried) {
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", job.id, job.state == JobState::kCancelling ? " is ending" : " has ended",
      "; it cannot be ", tried));
}

void CountOutcome(RowCounts& counts, RowState outcome) {
  switch (outcome) {
    case RowState::kSucceeded:
      ++counts.succeeded;
      break;
    case RowState::kFailed:
      ++counts.failed;
      break;
    case RowState::kExpired:
      ++counts.expired;
      break;
    default:
      ++counts.cancelled;
  }
}

}  // namespace

absl::Status SqliteWriter::Run(const std::string& sql, std::initializer_list<int64_t> parameters) {
  ASSIGN_OR_RETURN(SqliteStatement statement, connection_.Prepare(sql));
  for (const int64_t parameter : parameters) {
    statement.Bind(parameter);
  }
  return statement.Run();
}

absl::StatusOr<JobRow> SqliteWriter::FindMeant(const std::string& job_id,
                                                const std::string& job_uid) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (!job_uid.empty() && job_uid != job.record.uid) {
    return NoSuchJob(job_id);
  }
  return job;
}

absl::Status SqliteWriter::InsertJob(const JobRecord& job) {
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      connection_.Prepare("INSERT INTO jobs(id, uid, tenant, request_id, fingerprint, model, spec,"
                          " spec_crc, priority, input_format, input_file, state, create_time_us,"
                          " expire_time_us, retry_of, after_uid, input_bytes)"
                          " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)"));
  statement.Bind(job.id).Bind(job.uid).Bind(job.tenant).Bind(job.request_id);
  statement.BindBlob(job.fingerprint).Bind(job.model).BindBlob(job.spec).Bind(BodyCrc(job.spec));
  statement.Bind(int64_t{job.priority}).Bind(int64_t{job.input_format}).Bind(job.input_file);
  statement.Bind(job.create_time_us).Bind(job.expire_time_us);
  const absl::Status status =
      statement.Bind(job.retry_of).Bind(job.after_uid).Bind(job.input_bytes).Run();
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(absl::StrCat("job ", job.id, " or request_id ", job.request_id,
                                                 " of tenant ", job.tenant, " exists"));
  }
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const JobRow row, reader_.FindJob(job.id));
  if (row.number > kMaxJobNumber) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store has numbered ", row.number, " jobs, its most; delete old jobs"));
  }
  return absl::OkStatus();
}

absl::Status SqliteWriter::InsertRows(const std::string& job_id, const std::vector<NewRow>& rows) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (job.record.state != JobState::kReceiving) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " takes no more rows"));
  }
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("INSERT INTO rows(job, idx, offset, length, line, crc, state,"
                                       " seq) VALUES(?, ?, ?, ?, ?, ?, ?, ?)"));
  RowCounts& counts = job.record.counts;
  for (const NewRow& row : rows) {
    if (row.index != counts.total || counts.total + 1 >= kMaxResultsPerJob) {
      return absl::InternalError(absl::StrCat("row ", row.index, " of job ", job_id,
                                              " does not follow row ", counts.total - 1));
    }
    const RowState state = row.error_body.has_value() ? RowState::kFailed : RowState::kPending;
    statement.Bind(job.number).Bind(row.index).Bind(row.offset).Bind(row.length).Bind(row.line);
    statement.Bind(row.crc);
    statement.Bind(static_cast<int64_t>(state));
    const bool has_result = row.error_body.has_value();
    RETURN_IF_ERROR(statement.Bind(has_result ? job.record.last_seq + 1 : 0).Run());
    ++counts.total;
    if (row.error_body.has_value()) {
      ++counts.failed;
      ++job.record.last_seq;
      RETURN_IF_ERROR(InsertResult(job, row.index, *row.error_body));
    } else {
      ++counts.pending;
    }
  }
  return Save(job);
}

absl::Status SqliteWriter::FinishReceiving(const std::string& job_id, int64_t now_us) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (job.record.state != JobState::kReceiving) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " was received before"));
  }
  job.record.state = WaitingState(job.record);
  EndIfDone(job.record, now_us);
  return Save(job);
}

absl::Status SqliteWriter::DeleteJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(const JobRow job, reader_.FindJob(job_id));
  return Hide(job);
}

absl::Status SqliteWriter::Hide(const JobRow& job) {
  // An id that no call can name: ids have no '~'.
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("UPDATE jobs SET id = ?, request_id = '', input_file = '',"
                                       " state = ?, end_time_us = 0, purging = ? WHERE number = ?"));
  statement.Bind(absl::StrCat("~", job.number)).Bind(kJobDeleted).Bind(kPurgeJob);
  return statement.Bind(job.number).Run();
}

absl::Status SqliteWriter::PurgeResults(const std::string& job_id) {
  ASSIGN_OR_RETURN(const JobRow job, reader_.FindJob(job_id));
  if (!IsTerminal(job.record.state) || job.record.purged) {
    return absl::OkStatus();
  }
  return Run("UPDATE jobs SET input_file = '', purged = 1, purging = ? WHERE number = ?",
             {kPurgeResults, job.number});
}

absl::StatusOr<bool> SqliteWriter::PurgeDeleted(int64_t max_rows) {
  int64_t number = kNoRow;
  int64_t purging = 0;
  {
    ASSIGN_OR_RETURN(SqliteStatement next,
                     connection_.Prepare("SELECT number, purging FROM jobs INDEXED BY jobs_purging"
                                         " WHERE purging <> 0 ORDER BY number LIMIT 1"));
    ASSIGN_OR_RETURN(const bool found, next.Step());
    if (!found) {
      return false;
    }
    number = next.Int64(0);
    purging = next.Int64(1);
  }
  const int64_t base = number * kMaxResultsPerJob;
  ASSIGN_OR_RETURN(
      int64_t freed,
      RunAndCount("DELETE FROM results WHERE key IN (SELECT key FROM results WHERE key > ?"
                  " AND key < ? ORDER BY key LIMIT ?)",
                  {base, base + kMaxResultsPerJob, max_rows}));
  for (const char* table : {"progress", "rows"}) {
    ASSIGN_OR_RETURN(const int64_t more,
                     RunAndCount(absl::StrCat("DELETE FROM ", table,
                                              " WHERE job = ?1 AND idx <= (SELECT max(idx) FROM"
                                              " (SELECT idx FROM ",
                                              table, " WHERE job = ?1 ORDER BY idx LIMIT ?2))"),
                                 {number, max_rows}));
    freed = std::max(freed, more);
  }
  if (freed >= max_rows) {
    return true;
  }
  RETURN_IF_ERROR(purging == kPurgeJob
                      ? Run("DELETE FROM jobs WHERE number = ?", {number})
                      : Run("UPDATE jobs SET purging = 0 WHERE number = ?", {number}));
  return true;
}

absl::StatusOr<int64_t> SqliteWriter::RunAndCount(const std::string& sql,
                                                  std::initializer_list<int64_t> parameters) {
  RETURN_IF_ERROR(Run(sql, parameters));
  return connection_.num_changed();
}

absl::Status SqliteWriter::SaveChecked(const CheckedRows& rows) {
  absl::StatusOr<JobRow> job = FindMeant(rows.job_id, rows.job_uid);
  if (absl::IsNotFound(job.status())) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(job.status());
  JobRecord& record = job->record;
  if (rows.end_index <= record.checked) {
    return absl::OkStatus();
  }
  record.checked = rows.end_index;
  record.checked_prompts += rows.prompts;
  record.checked_prompt_tokens += rows.prompt_tokens;
  record.longest_prompt_tokens =
      std::max(record.longest_prompt_tokens, rows.longest_prompt_tokens);
  if (record.state == JobState::kValidating) {
    record.state = WaitingState(record);
  }
  return Save(*job);
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteWriter::Claim(const std::string& job_id,
                                                            int64_t limit,
                                                            const std::vector<int64_t>& preferred,
                                                            int64_t now_us) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (!IsRunnable(job.record.state)) {
    return std::vector<ClaimedRow>();
  }
  const int64_t end_index = job.record.checked;
  ASSIGN_OR_RETURN(std::vector<ClaimedRow> rows, reader_.ReturnedRows(job, limit));
  RETURN_IF_ERROR(MarkRunning(job, rows));
  const auto left = [&] { return limit - static_cast<int64_t>(rows.size()); };
  const auto take = [&](std::vector<ClaimedRow> fresh) -> absl::Status {
    RETURN_IF_ERROR(MarkRunning(job, fresh));
    std::move(fresh.begin(), fresh.end(), std::back_inserter(rows));
    return absl::OkStatus();
  };
  if (left() > 0 && !preferred.empty()) {
    ASSIGN_OR_RETURN(std::vector<ClaimedRow> fresh,
                     reader_.FreshRowsOf(job, end_index, preferred, left()));
    RETURN_IF_ERROR(take(std::move(fresh)));
  }
  if (left() > 0 && job.record.counts.pending > 0) {
    ASSIGN_OR_RETURN(std::vector<ClaimedRow> fresh, reader_.FreshRows(job, end_index, left()));
    RETURN_IF_ERROR(take(std::move(fresh)));
  }
  if (rows.empty()) {
    return rows;
  }
  ASSIGN_OR_RETURN(job.next_index, reader_.NextFresh(job, job.next_index));
  if (job.record.state != JobState::kRunning) {
    job.record.state = JobState::kRunning;
    job.record.start_time_us = now_us;
  }
  RETURN_IF_ERROR(Save(job));
  return rows;
}

absl::Status SqliteWriter::MarkRunning(JobRow& job, std::vector<ClaimedRow>& rows) {
  for (ClaimedRow& row : rows) {
    ++row.attempt;
    row.job_uid = job.record.uid;
    RETURN_IF_ERROR(Run("UPDATE rows SET state = 1, attempt = ? WHERE job = ? AND idx = ?",
                        {row.attempt, job.number, row.index}));
  }
  job.record.counts.pending -= static_cast<int64_t>(rows.size());
  job.record.counts.running += static_cast<int64_t>(rows.size());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteWriter::Publish(const std::vector<FinishedRow>& rows,
                                              int64_t now_us) {
  std::map<std::pair<std::string, std::string>, std::vector<const FinishedRow*>> by_job;
  for (const FinishedRow& row : rows) {
    by_job[{row.job_id, row.job_uid}].push_back(&row);
  }
  int64_t dropped = 0;
  for (const auto& [meant, finished] : by_job) {
    absl::StatusOr<JobRow> job = FindMeant(meant.first, meant.second);
    if (absl::IsNotFound(job.status())) {
      dropped += static_cast<int64_t>(finished.size());
      continue;
    }
    RETURN_IF_ERROR(job.status());
    for (const FinishedRow* row : finished) {
      ASSIGN_OR_RETURN(const bool published, PublishRow(*job, *row));
      dropped += published ? 0 : 1;
    }
    if (job->record.state != JobState::kReceiving) {
      EndIfDone(job->record, now_us);
    }
    RETURN_IF_ERROR(Save(*job));
  }
  return dropped;
}

absl::StatusOr<bool> SqliteWriter::PublishRow(JobRow& job, const FinishedRow& row) {
  ASSIGN_OR_RETURN(const int64_t state, StateOf(job.number, row.index));
  const bool running = state == static_cast<int64_t>(RowState::kRunning);
  if (!running && !IsPending(state)) {
    return false;
  }
  RETURN_IF_ERROR(Run(
      "UPDATE rows SET state = ?, seq = ? WHERE job = ? AND idx = ?",
      {static_cast<int64_t>(row.outcome), job.record.last_seq + 1, job.number, row.index}));
  RETURN_IF_ERROR(Run("DELETE FROM progress WHERE job = ? AND idx = ?", {job.number, row.index}));
  // Rows that end before they run do so in order.
  job.next_index += row.index == job.next_index ? 1 : 0;
  RowCounts& counts = job.record.counts;
  --(running ? counts.running : counts.pending);
  CountOutcome(counts, row.outcome);
  job.record.prompt_tokens += row.prompt_tokens;
  job.record.output_tokens += row.output_tokens;
  job.record.cached_tokens += row.cached_tokens;
  ++job.record.last_seq;
  RETURN_IF_ERROR(InsertResult(job, row.index, row.body));
  return true;
}

absl::Status SqliteWriter::InsertResult(JobRow& job, int64_t index, const std::string& body) {
  job.record.result_bytes += static_cast<int64_t>(body.size());
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("INSERT INTO results(key, idx, body, crc)"
                                       " VALUES(?, ?, ?, ?)"));
  statement.Bind(job.number * kMaxResultsPerJob + job.record.last_seq).Bind(index);
  return statement.BindBlob(body).Bind(BodyCrc(body)).Run();
}

absl::Status SqliteWriter::SaveProgress(const std::vector<RowProgress>& rows) {
  for (const RowProgress& row : rows) {
    const absl::StatusOr<JobRow> job = FindMeant(row.job_id, row.job_uid);
    if (absl::IsNotFound(job.status())) {
      continue;
    }
    RETURN_IF_ERROR(job.status());
    ASSIGN_OR_RETURN(const bool running, IsRunning(job->number, row.index));
    if (running) {
      RETURN_IF_ERROR(SaveProgressOf(job->number, row));
    }
  }
  return absl::OkStatus();
}

absl::Status SqliteWriter::SaveProgressOf(int64_t job_number, const RowProgress& row) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("INSERT OR REPLACE INTO progress(job, idx, body, crc)"
                                       " VALUES(?, ?, ?, ?)"));
  statement.Bind(job_number).Bind(row.index).BindBlob(row.progress);
  return statement.Bind(BodyCrc(row.progress)).Run();
}

absl::Status SqliteWriter::SaveReports(const std::vector<JobReport>& reports) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("UPDATE jobs SET report = ?, report_crc = ? WHERE id = ?"));
  for (const JobReport& report : reports) {
    statement.BindBlob(report.report).Bind(BodyCrc(report.report)).Bind(report.job_id);
    RETURN_IF_ERROR(statement.Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteWriter::Unclaim(const std::vector<RowProgress>& rows, bool count_attempt) {
  for (const RowProgress& row : rows) {
    absl::StatusOr<JobRow> job = FindMeant(row.job_id, row.job_uid);
    if (absl::IsNotFound(job.status())) {
      continue;
    }
    RETURN_IF_ERROR(job.status());
    ASSIGN_OR_RETURN(const bool running, IsRunning(job->number, row.index));
    if (!running) {
      continue;
    }
    RETURN_IF_ERROR(
        Run("UPDATE rows SET state = 5, attempt = attempt - ? WHERE job = ? AND idx = ?",
            {count_attempt ? 0 : 1, job->number, row.index}));
    if (!row.progress.empty()) {
      RETURN_IF_ERROR(SaveProgressOf(job->number, row));
    }
    --job->record.counts.running;
    ++job->record.counts.pending;
    RETURN_IF_ERROR(Save(*job));
  }
  return absl::OkStatus();
}

absl::Status SqliteWriter::PauseJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (job.record.state == JobState::kReceiving) {
    return NoSuchJob(job_id);
  }
  if (!IsOpen(job.record.state)) {
    return HasEnded(job.record, "paused");
  }
  job.record.state = JobState::kPaused;
  return Save(job);
}

absl::Status SqliteWriter::ResumeJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (job.record.state == JobState::kReceiving) {
    return NoSuchJob(job_id);
  }
  if (!IsOpen(job.record.state)) {
    return HasEnded(job.record, "resumed");
  }
  job.record.state =
      job.record.start_time_us == 0 ? WaitingState(job.record) : JobState::kRunning;
  return Save(job);
}

absl::Status SqliteWriter::RequestCancel(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  switch (job.record.state) {
    case JobState::kCancelling:
    case JobState::kCancelled:
      return absl::OkStatus();
    case JobState::kReceiving:
      return NoSuchJob(job_id);
    default:
      break;
  }
  if (!IsOpen(job.record.state)) {
    return HasEnded(job.record, "cancelled");
  }
  job.record.state = JobState::kCancelling;
  job.record.end_state = JobState::kCancelled;
  return Save(job);
}

absl::StatusOr<std::vector<std::string>> SqliteWriter::ExpireJobs(int64_t now_us) {
  ASSIGN_OR_RETURN(
      std::vector<std::string> job_ids,
      JobIds("SELECT id FROM jobs INDEXED BY jobs_open WHERE state < 6 AND state IN (1, 2, 3, 4)"
             " AND expire_time_us > 0 AND expire_time_us <= ?",
             {now_us}));
  for (const std::string& job_id : job_ids) {
    ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
    job.record.state = JobState::kCancelling;
    job.record.end_state = JobState::kExpired;
    EndIfDone(job.record, now_us);
    RETURN_IF_ERROR(Save(job));
  }
  return job_ids;
}

absl::Status SqliteWriter::FailJob(const std::string& job_id, const std::string& error,
                                   int64_t now_us) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (!IsRunnable(job.record.state)) {
    return absl::OkStatus();
  }
  job.record.state = JobState::kCancelling;
  job.record.end_state = JobState::kFailed;
  job.record.error = error;
  EndIfDone(job.record, now_us);
  return Save(job);
}

absl::StatusOr<std::vector<std::string>> SqliteWriter::Recover() {
  std::vector<std::string> input_files;
  ASSIGN_OR_RETURN(const std::vector<std::string> job_ids,
                   JobIds("SELECT id FROM jobs WHERE state < 6", {}));
  for (const std::string& job_id : job_ids) {
    const absl::StatusOr<JobRow> job = reader_.FindJob(job_id);
    if (absl::IsDataLoss(job.status())) {
      LOG(ERROR) << "job_unreadable error=\"" << job.status().message() << "\"";
      continue;
    }
    RETURN_IF_ERROR(job.status());
    if (job->record.state != JobState::kReceiving) {
      RETURN_IF_ERROR(RecoverJob(job_id));
      continue;
    }
    if (!job->record.input_file.empty()) {
      input_files.push_back(job->record.input_file);
    }
    RETURN_IF_ERROR(Hide(*job));
  }
  return input_files;
}

absl::Status SqliteWriter::RecoverJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  RETURN_IF_ERROR(
      Run("UPDATE rows INDEXED BY rows_open SET state = 5, attempt = attempt - 1"
          " WHERE job = ? AND state = 1",
          {job.number}));
  job.record.counts.pending += job.record.counts.running;
  job.record.counts.running = 0;
  return Save(job);
}

absl::StatusOr<std::vector<std::string>> SqliteWriter::JobIds(
    const std::string& sql, std::initializer_list<int64_t> parameters) {
  ASSIGN_OR_RETURN(SqliteStatement statement, connection_.Prepare(sql));
  for (const int64_t parameter : parameters) {
    statement.Bind(parameter);
  }
  std::vector<std::string> ids;
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return ids;
    }
    ids.push_back(statement.Bytes(0));
  }
}

absl::StatusOr<bool> SqliteWriter::IsRunning(int64_t job_number, int64_t index) {
  ASSIGN_OR_RETURN(const int64_t state, StateOf(job_number, index));
  return state == static_cast<int64_t>(RowState::kRunning);
}

absl::StatusOr<int64_t> SqliteWriter::StateOf(int64_t job_number, int64_t index) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT state FROM rows WHERE job = ? AND idx = ?"));
  ASSIGN_OR_RETURN(const bool found, statement.Bind(job_number).Bind(index).Step());
  return found ? statement.Int64(0) : kNoRow;
}

absl::Status SqliteWriter::Save(const JobRow& job) {
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      connection_.Prepare("UPDATE jobs SET state = ?, next_index = ?, total = ?, pending = ?,"
                          " running = ?, succeeded = ?, failed = ?, cancelled = ?, expired = ?,"
                          " end_state = ?, checked = ?, checked_prompts = ?,"
                          " checked_prompt_tokens = ?, longest_prompt_tokens = ?,"
                          " prompt_tokens = ?, output_tokens = ?, cached_tokens = ?, last_seq = ?,"
                          " result_bytes = ?, start_time_us = ?,"
                          " end_time_us = ?, error = ?, error_crc = ? WHERE number = ?"));
  const JobRecord& record = job.record;
  const RowCounts& counts = record.counts;
  statement.Bind(static_cast<int64_t>(record.state)).Bind(job.next_index).Bind(counts.total);
  statement.Bind(counts.pending).Bind(counts.running).Bind(counts.succeeded).Bind(counts.failed);
  statement.Bind(counts.cancelled).Bind(counts.expired);
  statement.Bind(static_cast<int64_t>(record.end_state)).Bind(record.checked);
  statement.Bind(record.checked_prompts).Bind(record.checked_prompt_tokens);
  statement.Bind(record.longest_prompt_tokens);
  statement.Bind(record.prompt_tokens).Bind(record.output_tokens).Bind(record.cached_tokens);
  statement.Bind(record.last_seq)
      .Bind(record.result_bytes)
      .Bind(record.start_time_us)
      .Bind(record.end_time_us);
  return statement.BindBlob(record.error).Bind(BodyCrc(record.error)).Bind(job.number).Run();
}

}  // namespace nightshift
