// SqliteWriter: the writing half of the SQLite store, over the one read-write connection. Contracts
// as in JobStore; every call runs inside the transaction that is open.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/store/job_store.h"
#include "server/store/sqlite_reader.h"
#include "server/store/sqlite_statement.h"

namespace nightshift {

// The store thread only. `connection` must outlive it.
class SqliteWriter {
 public:
  explicit SqliteWriter(SqliteConnection& connection)
      : connection_(connection), reader_(connection) {}

  absl::Status InsertJob(const JobRecord& job);
  absl::Status InsertRows(const std::string& job_id, const std::vector<NewRow>& rows);
  absl::Status FinishReceiving(const std::string& job_id, int64_t now_us);
  absl::Status DeleteJob(const std::string& job_id);
  absl::Status PurgeResults(const std::string& job_id);
  absl::StatusOr<bool> PurgeDeleted(int64_t max_rows);
  absl::Status SaveChecked(const CheckedRows& rows);
  absl::StatusOr<std::vector<ClaimedRow>> Claim(const std::string& job_id, int64_t limit,
                                                const std::vector<int64_t>& preferred,
                                                int64_t now_us);
  absl::StatusOr<int64_t> Publish(const std::vector<FinishedRow>& rows, int64_t now_us);
  absl::Status SaveProgress(const std::vector<RowProgress>& rows);
  absl::Status SaveReports(const std::vector<JobReport>& reports);
  absl::Status Unclaim(const std::vector<RowProgress>& rows, bool count_attempt);
  absl::Status PauseJob(const std::string& job_id);
  absl::Status ResumeJob(const std::string& job_id);
  absl::Status RequestCancel(const std::string& job_id);
  absl::StatusOr<std::vector<std::string>> ExpireJobs(int64_t now_us);
  absl::Status FailJob(const std::string& job_id, const std::string& error, int64_t now_us);
  absl::StatusOr<std::vector<std::string>> Recover();

  // What the open transaction sees.
  SqliteReader& reader() { return reader_; }

 private:
  // Runs one statement with these parameters.
  absl::Status Run(const std::string& sql, std::initializer_list<int64_t> parameters);
  // Numbers of rows that the statement changed.
  absl::StatusOr<int64_t> RunAndCount(const std::string& sql,
                                      std::initializer_list<int64_t> parameters);
  // NOT_FOUND also when the id is another job's than the one of this uid.
  absl::StatusOr<JobRow> FindMeant(const std::string& job_id, const std::string& job_uid);
  absl::Status Hide(const JobRow& job);
  // Pending rows that are claimed.
  absl::Status MarkRunning(JobRow& job, std::vector<ClaimedRow>& rows);
  absl::Status InsertResult(JobRow& job, int64_t index, const std::string& body);
  absl::StatusOr<bool> PublishRow(JobRow& job, const FinishedRow& row);
  absl::Status SaveProgressOf(int64_t job_number, const RowProgress& row);
  // kRunning and no other state; false also for rows that do not exist.
  absl::StatusOr<bool> IsRunning(int64_t job_number, int64_t index);
  absl::StatusOr<int64_t> StateOf(int64_t job_number, int64_t index);
  // Writes the changing columns back.
  absl::Status Save(const JobRow& job);
  absl::Status RecoverJob(const std::string& job_id);
  absl::StatusOr<std::vector<std::string>> JobIds(const std::string& sql,
                                                  std::initializer_list<int64_t> parameters);

  SqliteConnection& connection_;
  SqliteReader reader_;
};

}  // namespace nightshift
