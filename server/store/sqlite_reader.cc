#include "server/store/sqlite_reader.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/store/sqlite_schema.h"

namespace nightshift {
namespace {

constexpr char kJobColumns[] =
    "SELECT number, next_index, id, uid, tenant, request_id, fingerprint, model, spec, spec_crc,"
    " priority, input_format, input_file, state, total, pending, running, succeeded, failed,"
    " cancelled, prompt_tokens, output_tokens, last_seq, create_time_us, start_time_us,"
    " end_time_us, error, error_crc, report, report_crc, end_state, expired, expire_time_us,"
    " retry_of, purged, checked, checked_prompts, checked_prompt_tokens, longest_prompt_tokens,"
    " after_uid, cached_tokens, input_bytes, result_bytes FROM jobs ";

// Reads the row that kJobColumns selected. DATA_LOSS when the job fails its checksum.
absl::StatusOr<JobRow> ReadJobRow(const SqliteStatement& statement) {
  int column = 0;
  const auto number = [&] { return statement.Int64(column++); };
  const auto bytes = [&] { return statement.Bytes(column++); };
  JobRow row;
  JobRecord& job = row.record;
  row.number = number();
  row.next_index = number();
  job.id = bytes();
  job.uid = bytes();
  job.tenant = bytes();
  job.request_id = bytes();
  job.fingerprint = bytes();
  job.model = bytes();
  job.spec = bytes();
  const int64_t spec_crc = number();
  job.priority = static_cast<int32_t>(number());
  job.input_format = static_cast<int32_t>(number());
  job.input_file = bytes();
  job.state = static_cast<JobState>(number());
  job.counts.total = number();
  job.counts.pending = number();
  job.counts.running = number();
  job.counts.succeeded = number();
  job.counts.failed = number();
  job.counts.cancelled = number();
  job.prompt_tokens = number();
  job.output_tokens = number();
  job.last_seq = number();
  job.create_time_us = number();
  job.start_time_us = number();
  job.end_time_us = number();
  job.error = bytes();
  const int64_t error_crc = number();
  job.report = bytes();
  const int64_t report_crc = number();
  job.end_state = static_cast<JobState>(number());
  job.counts.expired = number();
  job.expire_time_us = number();
  job.retry_of = bytes();
  job.purged = number() != 0;
  job.checked = number();
  job.checked_prompts = number();
  job.checked_prompt_tokens = number();
  job.longest_prompt_tokens = number();
  job.after_uid = bytes();
  job.cached_tokens = number();
  job.input_bytes = number();
  job.result_bytes = number();
  if (BodyCrc(job.spec) != spec_crc || BodyCrc(job.error) != error_crc) {
    return absl::DataLossError(
        absl::StrCat("the stored record of job ", job.id,
                     " fails its checksum; cancel the job and submit again"));
  }
  if (BodyCrc(job.report) != report_crc) {
    LOG(ERROR) << "report_corrupt job=" << job.id;  // the job is whole without it
    job.report.clear();
  }
  return row;
}

}  // namespace

int64_t BodyCrc(absl::string_view body) {
  return Crc32c(std::as_bytes(std::span(body.data(), body.size())));
}

absl::StatusOr<JobRow> SqliteReader::FindJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare(absl::StrCat(kJobColumns, "WHERE id = ?")));
  ASSIGN_OR_RETURN(const bool found, statement.Bind(job_id).Step());
  if (!found) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " does not exist"));
  }
  return ReadJobRow(statement);
}

absl::StatusOr<JobRow> SqliteReader::FindVisibleJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow row, FindJob(job_id));
  if (row.record.state == JobState::kReceiving) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " does not exist"));
  }
  return row;
}

absl::StatusOr<JobRecord> SqliteReader::GetJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(JobRow row, FindVisibleJob(job_id));
  return std::move(row.record);
}

absl::StatusOr<JobRecord> SqliteReader::FindSubmission(const std::string& tenant,
                                                       const std::string& request_id) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare(absl::StrCat(
                       kJobColumns, "WHERE request_id <> '' AND tenant = ? AND request_id = ?")));
  ASSIGN_OR_RETURN(const bool found, statement.Bind(tenant).Bind(request_id).Step());
  if (!found) {
    return absl::NotFoundError(absl::StrCat("no job has request_id ", request_id));
  }
  ASSIGN_OR_RETURN(JobRow row, ReadJobRow(statement));
  return std::move(row.record);
}

absl::StatusOr<std::vector<JobRecord>> SqliteReader::ListJobs(const JobFilter& filter,
                                                              int64_t limit) {
  const std::string by_tenant = filter.tenant.has_value() ? "AND tenant = ? " : "";
  const std::string by_state = filter.state.has_value() ? "AND state = ? " : "";
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare(absl::StrCat(
                       kJobColumns,
                       "WHERE (create_time_us, id) < (?, ?) AND create_time_us >= ?"
                       " AND state BETWEEN 1 AND 9 ",
                       by_tenant, by_state, "ORDER BY create_time_us DESC, id DESC LIMIT ?")));
  statement.Bind(filter.before_create_time_us).Bind(filter.before_id);
  statement.Bind(filter.from_create_time_us);
  if (filter.tenant.has_value()) {
    statement.Bind(*filter.tenant);
  }
  if (filter.state.has_value()) {
    statement.Bind(static_cast<int64_t>(*filter.state));
  }
  statement.Bind(limit);
  return ReadJobs(statement);
}

absl::StatusOr<TenantUsage> SqliteReader::ReadUsage(const std::string& tenant) {
  TenantUsage usage;
  ASSIGN_OR_RETURN(SqliteStatement active,
                   connection_.Prepare("SELECT count(*), coalesce(sum(pending + running), 0)"
                                       " FROM jobs INDEXED BY jobs_open"
                                       " WHERE state < 6 AND tenant = ?"));
  RETURN_IF_ERROR(active.Bind(tenant).Step().status());
  usage.active_jobs = active.Int64(0);
  usage.queued_requests = active.Int64(1);
  ASSIGN_OR_RETURN(
      SqliteStatement stored,
      connection_.Prepare("SELECT coalesce(sum(input_bytes + result_bytes), 0)"
                          " FROM jobs INDEXED BY jobs_by_tenant"
                          " WHERE tenant = ? AND purged = 0 AND state BETWEEN 0 AND 9"));
  RETURN_IF_ERROR(stored.Bind(tenant).Step().status());
  usage.stored_bytes = stored.Int64(0);
  return usage;
}

absl::StatusOr<std::map<JobState, int64_t>> SqliteReader::CountJobs() {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT state, COUNT(*) FROM jobs WHERE state BETWEEN 1 AND 9 "
                                       "GROUP BY state"));
  std::map<JobState, int64_t> counts;
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return counts;
    }
    counts[static_cast<JobState>(statement.Int64(0))] = statement.Int64(1);
  }
}

absl::StatusOr<std::vector<JobRecord>> SqliteReader::ActiveJobs() {
  ASSIGN_OR_RETURN(
      SqliteStatement statement,
      connection_.Prepare(absl::StrCat(kJobColumns,
                                       "INDEXED BY jobs_open WHERE state < 6 AND state > 0 "
                                       "ORDER BY priority DESC, create_time_us, number")));
  return ReadJobs(statement);
}

absl::StatusOr<std::vector<JobRecord>> SqliteReader::ReadJobs(SqliteStatement& statement) {
  std::vector<JobRecord> jobs;
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return jobs;
    }
    absl::StatusOr<JobRow> row = ReadJobRow(statement);
    if (row.ok()) {
      jobs.push_back(std::move(row->record));
    } else {
      LOG(ERROR) << "job_unreadable error=\"" << row.status().message() << "\"";
    }
  }
}

absl::StatusOr<std::vector<StoredResult>> SqliteReader::ReadResults(const std::string& job_id,
                                                                    int64_t after_seq,
                                                                    int64_t max_bytes) {
  ASSIGN_OR_RETURN(const JobRow job, FindVisibleJob(job_id));
  std::vector<StoredResult> results;
  if (job.record.purged || after_seq >= job.record.last_seq) {
    return results;
  }
  const int64_t base = job.number * kMaxResultsPerJob;
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT key, body, crc, idx FROM results"
                                       " WHERE key > ? AND key <= ? ORDER BY key"));
  statement.Bind(base + after_seq).Bind(base + job.record.last_seq);
  int64_t bytes = 0;
  int64_t expected_seq = after_seq + 1;
  while (bytes < max_bytes) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row && expected_seq > job.record.last_seq) {
      break;
    }
    StoredResult result;
    if (has_row) {
      result = {.seq = statement.Int64(0) - base,
                .index = statement.Int64(3),
                .body = statement.Bytes(1)};
    }
    if (result.seq != expected_seq || BodyCrc(result.body) != statement.Int64(2)) {
      if (!results.empty()) {
        break;  // what is whole is served; the next read begins with the damaged one
      }
      return absl::DataLossError(absl::StrCat("result ", expected_seq, " of job ", job_id,
                                              " is missing or fails its checksum; skip it by"
                                              " reading after seq ",
                                              expected_seq));
    }
    bytes += static_cast<int64_t>(result.body.size());
    results.push_back(std::move(result));
    ++expected_seq;
  }
  return results;
}

absl::StatusOr<std::vector<StoredResult>> SqliteReader::ReadResultsInInputOrder(
    const std::string& job_id, int64_t first_index, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const JobRow job, FindVisibleJob(job_id));
  std::vector<StoredResult> results;
  if (job.record.purged) {
    return results;
  }
  const int64_t base = job.number * kMaxResultsPerJob;
  ASSIGN_OR_RETURN(SqliteStatement rows,
                   connection_.Prepare("SELECT idx, seq FROM rows WHERE job = ? AND idx >= ?"
                                       " ORDER BY idx"));
  ASSIGN_OR_RETURN(SqliteStatement result,
                   connection_.Prepare("SELECT body, crc, idx FROM results WHERE key = ?"));
  rows.Bind(job.number).Bind(first_index);
  int64_t bytes = 0;
  while (bytes < max_bytes) {
    ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row || rows.Int64(1) == 0) {
      break;
    }
    StoredResult stored = {.seq = rows.Int64(1), .index = rows.Int64(0), .body = {}};
    result.Reset();
    ASSIGN_OR_RETURN(const bool found, result.Bind(base + stored.seq).Step());
    if (found) {
      stored.body = result.Bytes(0);
    }
    if (!found || BodyCrc(stored.body) != result.Int64(1) || result.Int64(2) != stored.index) {
      if (!results.empty()) {
        break;  // what is whole is served; the next read begins with the damaged one
      }
      return absl::DataLossError(absl::StrCat(
          "the result of row ", stored.index, " of job ", job_id,
          " is missing or fails its checksum; skip it by reading after ", stored.index + 1));
    }
    bytes += static_cast<int64_t>(stored.body.size());
    results.push_back(std::move(stored));
  }
  return results;
}

absl::StatusOr<std::vector<StoredRow>> SqliteReader::ReadRows(const std::string& job_id,
                                                              int64_t first_index, int64_t limit) {
  ASSIGN_OR_RETURN(const JobRow job, FindVisibleJob(job_id));
  if (job.record.purged) {
    return std::vector<StoredRow>();
  }
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT idx, offset, length, line, seq, crc FROM rows WHERE"
                                       " job = ? AND idx >= ? ORDER BY idx LIMIT ?"));
  statement.Bind(job.number).Bind(first_index).Bind(limit);
  return ReadStoredRows(statement);
}

absl::StatusOr<std::vector<StoredRow>> SqliteReader::NeverClaimed(const std::string& job_id,
                                                                  int64_t first_index,
                                                                  int64_t end_index,
                                                                  int64_t limit) {
  ASSIGN_OR_RETURN(const JobRow job, FindVisibleJob(job_id));
  if (job.record.purged) {
    return std::vector<StoredRow>();
  }
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT idx, offset, length, line, seq, crc FROM rows WHERE"
                                       " job = ? AND idx >= ? AND idx < ? AND state = 0"
                                       " ORDER BY idx LIMIT ?"));
  statement.Bind(job.number).Bind(std::max(first_index, job.next_index));
  statement.Bind(end_index).Bind(limit);
  return ReadStoredRows(statement);
}

absl::StatusOr<std::vector<StoredRow>> SqliteReader::ReadStoredRows(SqliteStatement& statement) {
  std::vector<StoredRow> rows;
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return rows;
    }
    rows.push_back({.index = statement.Int64(0),
                    .offset = statement.Int64(1),
                    .length = statement.Int64(2),
                    .line = statement.Int64(3),
                    .has_result = statement.Int64(4) > 0,
                    .crc = statement.Int64(5)});
  }
}

absl::StatusOr<std::vector<std::string>> SqliteReader::EndedBefore(int64_t end_time_us, bool purged,
                                                                   int64_t limit) {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT id FROM jobs WHERE purged = ? AND end_time_us > 0"
                                       " AND end_time_us < ? ORDER BY end_time_us LIMIT ?"));
  statement.Bind(int64_t{purged ? 1 : 0}).Bind(end_time_us).Bind(limit);
  std::vector<std::string> ids;
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return ids;
    }
    ids.push_back(statement.Bytes(0));
  }
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteReader::PendingRows(const JobRow& job,
                                                                  int64_t end_index,
                                                                  int64_t limit) {
  ASSIGN_OR_RETURN(std::vector<ClaimedRow> rows, ReturnedRows(job, limit));
  const int64_t returned = static_cast<int64_t>(rows.size());
  // Without fresh rows there is nothing to find between next_index and the end: do not look.
  if (returned == limit || returned == job.record.counts.pending) {
    return rows;
  }
  ASSIGN_OR_RETURN(std::vector<ClaimedRow> fresh, FreshRows(job, end_index, limit - returned));
  std::move(fresh.begin(), fresh.end(), std::back_inserter(rows));
  return rows;
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteReader::ReturnedRows(const JobRow& job,
                                                                   int64_t limit) {
  std::vector<ClaimedRow> rows;
  if (job.record.counts.pending == 0 || limit <= 0) {
    return rows;
  }
  ASSIGN_OR_RETURN(
      SqliteStatement returned,
      connection_.Prepare("SELECT idx, offset, length, line, attempt, body, progress.crc,"
                          " rows.crc FROM rows INDEXED BY rows_open LEFT JOIN progress USING(job, idx)"
                          " WHERE job = ? AND state = 5 ORDER BY idx LIMIT ?"));
  returned.Bind(job.number).Bind(limit);
  RETURN_IF_ERROR(AppendPendingRows(returned, job.record.id, rows));
  return rows;
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteReader::FreshRows(const JobRow& job,
                                                                int64_t end_index, int64_t limit) {
  std::vector<ClaimedRow> rows;
  ASSIGN_OR_RETURN(SqliteStatement fresh,
                   connection_.Prepare("SELECT idx, offset, length, line, attempt, x'', 0, crc"
                                       " FROM rows WHERE job = ? AND idx >= ? AND idx < ?"
                                       " AND state = 0 ORDER BY idx LIMIT ?"));
  fresh.Bind(job.number).Bind(job.next_index).Bind(end_index).Bind(limit);
  RETURN_IF_ERROR(AppendPendingRows(fresh, job.record.id, rows));
  return rows;
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteReader::FreshRowsOf(
    const JobRow& job, int64_t end_index, const std::vector<int64_t>& indices, int64_t limit) {
  std::vector<ClaimedRow> rows;
  ASSIGN_OR_RETURN(SqliteStatement row,
                   connection_.Prepare("SELECT idx, offset, length, line, attempt, x'', 0, crc"
                                       " FROM rows WHERE job = ? AND idx = ? AND state = 0"));
  std::set<int64_t> taken;
  for (const int64_t index : indices) {
    if (static_cast<int64_t>(rows.size()) >= limit) {
      break;
    }
    if (index >= end_index || !taken.insert(index).second) {
      continue;
    }
    row.Reset();
    row.Bind(job.number).Bind(index);
    RETURN_IF_ERROR(AppendPendingRows(row, job.record.id, rows));
  }
  return rows;
}

absl::StatusOr<int64_t> SqliteReader::NextFresh(const JobRow& job, int64_t first_index) {
  ASSIGN_OR_RETURN(SqliteStatement next,
                   connection_.Prepare("SELECT idx FROM rows WHERE job = ? AND idx >= ?"
                                       " AND state = 0 ORDER BY idx LIMIT 1"));
  ASSIGN_OR_RETURN(const bool found, next.Bind(job.number).Bind(first_index).Step());
  return found ? next.Int64(0) : job.record.counts.total;
}

absl::Status SqliteReader::AppendPendingRows(SqliteStatement& statement, const std::string& job_id,
                                             std::vector<ClaimedRow>& rows) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return absl::OkStatus();
    }
    ClaimedRow row = {.job_id = job_id,
                      .index = statement.Int64(0),
                      .offset = statement.Int64(1),
                      .length = statement.Int64(2),
                      .line = statement.Int64(3),
                      .crc = statement.Int64(7),
                      .attempt = static_cast<int32_t>(statement.Int64(4)),
                      .progress = statement.Bytes(5)};
    if (!row.progress.empty() && BodyCrc(row.progress) != statement.Int64(6)) {
      // Progress only saves work: the row starts from its prompt.
      LOG(ERROR) << "progress_corrupt job=" << job_id << " index=" << row.index;
      row.progress.clear();
    }
    rows.push_back(std::move(row));
  }
}

absl::StatusOr<std::vector<std::string>> SqliteReader::InputFiles() {
  ASSIGN_OR_RETURN(SqliteStatement statement,
                   connection_.Prepare("SELECT input_file FROM jobs WHERE input_file <> ''"));
  std::vector<std::string> files;
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row) {
      return files;
    }
    files.push_back(statement.Bytes(0));
  }
}

}  // namespace nightshift
