#include "server/store/sqlite_writer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/store/sqlite_schema.h"

namespace nightshift {
namespace {

constexpr int64_t kNoRow = -1;

bool IsPending(int64_t row_state) {
  return row_state == static_cast<int64_t>(RowState::kPending) || row_state == kRowReturned;
}

// Ends the job when its last row has ended.
void EndIfDone(JobRecord& job, int64_t now_us) {
  if (job.counts.pending + job.counts.running > 0 || IsTerminal(job.state)) {
    return;
  }
  if (job.state == JobState::kCancelling) {
    job.state = job.error.empty() ? JobState::kCancelled : JobState::kFailed;
  } else {
    job.state = JobState::kSucceeded;
  }
  job.end_time_us = now_us;
}

void CountOutcome(RowCounts& counts, RowState outcome) {
  switch (outcome) {
    case RowState::kSucceeded:
      ++counts.succeeded;
      break;
    case RowState::kFailed:
      ++counts.failed;
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

absl::Status SqliteWriter::InsertJob(const JobRecord& job) {
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      connection_.Prepare("INSERT INTO jobs(id, uid, tenant, request_id, fingerprint, model, spec,"
                          " spec_crc, priority, input_format, input_file, state, create_time_us)"
                          " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)"));
  statement.Bind(job.id).Bind(job.uid).Bind(job.tenant).Bind(job.request_id);
  statement.BindBlob(job.fingerprint).Bind(job.model).BindBlob(job.spec).Bind(BodyCrc(job.spec));
  statement.Bind(int64_t{job.priority}).Bind(int64_t{job.input_format}).Bind(job.input_file);
  const absl::Status status = statement.Bind(job.create_time_us).Run();
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
                   connection_.Prepare("INSERT INTO rows(job, idx, offset, length, line, state)"
                                       " VALUES(?, ?, ?, ?, ?, ?)"));
  RowCounts& counts = job.record.counts;
  for (const NewRow& row : rows) {
    if (row.index != counts.total || counts.total + 1 >= kMaxResultsPerJob) {
      return absl::InternalError(absl::StrCat("row ", row.index, " of job ", job_id,
                                              " does not follow row ", counts.total - 1));
    }
    const RowState state = row.error_body.has_value() ? RowState::kFailed : RowState::kPending;
    statement.Bind(job.number).Bind(row.index).Bind(row.offset).Bind(row.length).Bind(row.line);
    RETURN_IF_ERROR(statement.Bind(static_cast<int64_t>(state)).Run());
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
  job.record.state = JobState::kQueued;
  EndIfDone(job.record, now_us);
  return Save(job);
}

absl::Status SqliteWriter::DeleteJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(const JobRow job, reader_.FindJob(job_id));
  return DeleteEverythingOf(job);
}

absl::Status SqliteWriter::DeleteEverythingOf(const JobRow& job) {
  const int64_t base = job.number * kMaxResultsPerJob;
  RETURN_IF_ERROR(
      Run("DELETE FROM results WHERE key > ? AND key < ?", {base, base + kMaxResultsPerJob}));
  RETURN_IF_ERROR(Run("DELETE FROM progress WHERE job = ?", {job.number}));
  RETURN_IF_ERROR(Run("DELETE FROM rows WHERE job = ?", {job.number}));
  return Run("DELETE FROM jobs WHERE number = ?", {job.number});
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteWriter::Claim(const std::string& job_id,
                                                            int64_t limit, int64_t now_us) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (job.record.state != JobState::kQueued && job.record.state != JobState::kRunning) {
    return std::vector<ClaimedRow>();
  }
  ASSIGN_OR_RETURN(std::vector<ClaimedRow> rows, reader_.PendingRows(job, limit));
  if (rows.empty()) {
    return rows;
  }
  for (ClaimedRow& row : rows) {
    ++row.attempt;
    RETURN_IF_ERROR(Run("UPDATE rows SET state = 1, attempt = ? WHERE job = ? AND idx = ?",
                        {row.attempt, job.number, row.index}));
    job.next_index = std::max(job.next_index, row.index + 1);
  }
  const int64_t count = static_cast<int64_t>(rows.size());
  job.record.counts.pending -= count;
  job.record.counts.running += count;
  if (job.record.state == JobState::kQueued) {
    job.record.state = JobState::kRunning;
    job.record.start_time_us = now_us;
  }
  RETURN_IF_ERROR(Save(job));
  return rows;
}

absl::StatusOr<int64_t> SqliteWriter::Publish(const std::vector<FinishedRow>& rows,
                                              int64_t now_us) {
  std::map<std::string, std::vector<const FinishedRow*>> by_job;
  for (const FinishedRow& row : rows) {
    by_job[row.job_id].push_back(&row);
  }
  int64_t dropped = 0;
  for (const auto& [job_id, finished] : by_job) {
    absl::StatusOr<JobRow> job = reader_.FindJob(job_id);
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
  RETURN_IF_ERROR(Run("UPDATE rows SET state = ? WHERE job = ? AND idx = ?",
                      {static_cast<int64_t>(row.outcome), job.number, row.index}));
  RETURN_IF_ERROR(Run("DELETE FROM progress WHERE job = ? AND idx = ?", {job.number, row.index}));
  RowCounts& counts = job.record.counts;
  --(running ? counts.running : counts.pending);
  CountOutcome(counts, row.outcome);
  job.record.prompt_tokens += row.prompt_tokens;
  job.record.output_tokens += row.output_tokens;
  ++job.record.last_seq;
  RETURN_IF_ERROR(InsertResult(job, row.index, row.body));
  return true;
}

absl::Status SqliteWriter::InsertResult(const JobRow& job, int64_t index, const std::string& body) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("INSERT INTO results(key, idx, body, crc)"
                                       " VALUES(?, ?, ?, ?)"));
  statement.Bind(job.number * kMaxResultsPerJob + job.record.last_seq).Bind(index);
  return statement.BindBlob(body).Bind(BodyCrc(body)).Run();
}

absl::Status SqliteWriter::SaveProgress(const std::vector<RowProgress>& rows) {
  for (const RowProgress& row : rows) {
    const absl::StatusOr<JobRow> job = reader_.FindJob(row.job_id);
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
    absl::StatusOr<JobRow> job = reader_.FindJob(row.job_id);
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

absl::Status SqliteWriter::RequestCancel(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  switch (job.record.state) {
    case JobState::kQueued:
    case JobState::kRunning:
      job.record.state = JobState::kCancelling;
      return Save(job);
    case JobState::kCancelling:
    case JobState::kCancelled:
      return absl::OkStatus();
    case JobState::kReceiving:
      return absl::NotFoundError(absl::StrCat("job ", job_id, " does not exist"));
    default:
      return absl::FailedPreconditionError(
          absl::StrCat("job ", job_id, " has ended; it cannot be cancelled"));
  }
}

absl::Status SqliteWriter::FailJob(const std::string& job_id, const std::string& error,
                                   int64_t now_us) {
  ASSIGN_OR_RETURN(JobRow job, reader_.FindJob(job_id));
  if (job.record.state != JobState::kQueued && job.record.state != JobState::kRunning) {
    return absl::OkStatus();
  }
  job.record.state = JobState::kCancelling;
  job.record.error = error;
  EndIfDone(job.record, now_us);
  return Save(job);
}

absl::StatusOr<std::vector<std::string>> SqliteWriter::Recover() {
  std::vector<std::string> input_files;
  ASSIGN_OR_RETURN(const std::vector<std::string> job_ids, OpenJobIds());
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
    RETURN_IF_ERROR(DeleteEverythingOf(*job));
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

absl::StatusOr<std::vector<std::string>> SqliteWriter::OpenJobIds() {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT id FROM jobs WHERE state < 6"));
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
                          " running = ?, succeeded = ?, failed = ?, cancelled = ?,"
                          " prompt_tokens = ?, output_tokens = ?, last_seq = ?, start_time_us = ?,"
                          " end_time_us = ?, error = ?, error_crc = ? WHERE number = ?"));
  const JobRecord& record = job.record;
  const RowCounts& counts = record.counts;
  statement.Bind(static_cast<int64_t>(record.state)).Bind(job.next_index).Bind(counts.total);
  statement.Bind(counts.pending).Bind(counts.running).Bind(counts.succeeded).Bind(counts.failed);
  statement.Bind(counts.cancelled).Bind(record.prompt_tokens).Bind(record.output_tokens);
  statement.Bind(record.last_seq).Bind(record.start_time_us).Bind(record.end_time_us);
  return statement.BindBlob(record.error).Bind(BodyCrc(record.error)).Bind(job.number).Run();
}

}  // namespace nightshift
