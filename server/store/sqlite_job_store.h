// SqliteJobStore: the embedded store. One read-write connection does every write and checkpoint;
// readers have read-only connections of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/store/job_store.h"
#include "server/store/sqlite_reader.h"
#include "server/store/sqlite_statement.h"
#include "server/store/sqlite_writer.h"

namespace nightshift {

struct SqliteStoreOptions {
  // The file, made when missing (mode 0600). Its folder is on a local disk: StateDirectory checks.
  std::string path;
  // A cap on the database file; 0: the disk. At it writes answer RESOURCE_EXHAUSTED.
  int64_t max_database_bytes = 0;
  // One that Backup has just made. It is marked as not closed cleanly and so checked; nobody is told
  // of an unclean stop.
  bool is_backup = false;
};

class SqliteJobStore : public JobStore {
 public:
  // Opens, migrates, and after an unclean stop checks the database. Errors: FAILED_PRECONDITION
  // (newer schema, foreign file, permissions), DATA_LOSS (the check found damage).
  static absl::StatusOr<std::unique_ptr<SqliteJobStore>> Open(const SqliteStoreOptions& options);
  // Empties the log into the database and marks a clean stop.
  ~SqliteJobStore() override;

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  absl::Status SetMark() override;
  absl::Status ReleaseMark() override;
  absl::Status RollbackToMark() override;
  absl::Status Checkpoint() override;
  absl::Status EmptyLog() override;

  absl::Status InsertJob(const JobRecord& job) override;
  absl::Status InsertRows(const std::string& job_id, const std::vector<NewRow>& rows) override;
  absl::Status FinishReceiving(const std::string& job_id, int64_t now_us) override;
  absl::Status DeleteJob(const std::string& job_id) override;
  absl::Status PurgeResults(const std::string& job_id) override;
  absl::StatusOr<bool> PurgeDeleted(int64_t max_rows) override;
  absl::Status SaveChecked(const CheckedRows& rows) override;
  absl::StatusOr<std::vector<ClaimedRow>> Claim(const std::string& job_id, int64_t limit,
                                                const std::vector<int64_t>& preferred,
                                                int64_t now_us) override;
  absl::StatusOr<int64_t> Publish(const std::vector<FinishedRow>& rows, int64_t now_us) override;
  absl::Status SaveProgress(const std::vector<RowProgress>& rows) override;
  absl::Status SaveReports(const std::vector<JobReport>& reports) override;
  absl::Status Unclaim(const std::vector<RowProgress>& rows, bool count_attempt) override;
  absl::Status PauseJob(const std::string& job_id) override;
  absl::Status ResumeJob(const std::string& job_id) override;
  absl::Status RequestCancel(const std::string& job_id) override;
  absl::StatusOr<std::vector<std::string>> ExpireJobs(int64_t now_us) override;
  absl::Status FailJob(const std::string& job_id, const std::string& error,
                       int64_t now_us) override;
  absl::StatusOr<std::vector<std::string>> Recover() override;

  absl::StatusOr<JobRecord> GetJob(const std::string& job_id) override;
  absl::StatusOr<JobRecord> FindSubmission(const std::string& tenant,
                                           const std::string& request_id) override;
  absl::StatusOr<std::vector<JobRecord>> ListJobs(const JobFilter& filter, int64_t limit) override;
  absl::StatusOr<TenantUsage> ReadUsage(const std::string& tenant) override;
  absl::StatusOr<std::map<JobState, int64_t>> CountJobs() override;
  absl::StatusOr<std::vector<JobRecord>> ActiveJobs() override;
  absl::StatusOr<std::vector<StoredResult>> ReadResults(const std::string& job_id,
                                                        int64_t after_seq,
                                                        int64_t max_bytes) override;
  absl::StatusOr<std::vector<StoredResult>> ReadResultsInInputOrder(const std::string& job_id,
                                                                    int64_t first_index,
                                                                    int64_t max_bytes) override;
  absl::StatusOr<std::vector<StoredRow>> ReadRows(const std::string& job_id, int64_t first_index,
                                                  int64_t limit) override;
  absl::StatusOr<std::vector<StoredRow>> NeverClaimed(const std::string& job_id,
                                                      int64_t first_index, int64_t end_index,
                                                      int64_t limit) override;
  absl::StatusOr<std::vector<std::string>> EndedBefore(int64_t end_time_us, bool purged,
                                                       int64_t limit) override;
  absl::StatusOr<std::vector<ClaimedRow>> NextUnfinished(const std::string& job_id,
                                                         int64_t limit) override;
  absl::StatusOr<std::vector<std::string>> InputFiles() override;
  std::string description() const override;

  // Writes a copy of what is committed now to a new file, which Open can open. Any thread; the log
  // is not emptied meanwhile. Errors: ALREADY_EXISTS (the file), RESOURCE_EXHAUSTED (disk full).
  absl::Status Backup(const std::string& target_path);

 private:
  // A read-only connection with its queries.
  struct Reader {
    std::unique_ptr<SqliteConnection> connection;
    std::unique_ptr<SqliteReader> queries;
  };

  SqliteJobStore(std::string path, std::unique_ptr<SqliteConnection> connection);
  static absl::StatusOr<std::unique_ptr<SqliteJobStore>> OpenFile(
      const SqliteStoreOptions& options);
  absl::Status MarkClean(bool clean);
  // Whether the pages are still of the kind that the database was made with.
  absl::Status CheckKindOfPages();
  absl::Status CheckUnlessClean(const char* reason);
  static int OnLogGrown(void* store, sqlite3* database, const char* name, int pages);
  // Runs `query` on the writer inside its own transaction, else on a read-only connection.
  template <typename Query>
  auto ReadWith(Query query) -> decltype(query(std::declval<SqliteReader&>()));
  absl::StatusOr<Reader> BorrowReader();

  const std::string path_;
  std::unique_ptr<SqliteConnection> connection_;
  SqliteWriter writer_;
  // The thread whose transaction is open; no thread when none is.
  std::atomic<std::thread::id> writing_thread_;
  // Log pages after the last commit, and how many start the next checkpoint. Writer's thread.
  int64_t log_pages_ = 0;
  int64_t checkpoint_at_pages_;

  Mutex mutex_;
  std::vector<Reader> idle_readers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
