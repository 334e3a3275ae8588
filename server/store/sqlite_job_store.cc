#include "server/store/sqlite_job_store.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/store/checked_pages.h"
#include "server/store/sqlite_log_check.h"
#include "server/store/sqlite_schema.h"
#include "server/store/state_directory.h"

namespace nightshift {
namespace {

// 16 MiB of log between checkpoints: each costs a sync of the database file, and a log page that
// is rewritten meanwhile is copied once instead of many times.
constexpr int64_t kCheckpointPages = 4096;

// Makes the file with mode 0600 before SQLite would with the process' umask; the log and its index
// take their mode from it.
absl::Status MakePrivateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("open ", path, " for writing: ", strerror(errno)));
  }
  // Nothing of SQLite has this file open yet, so no lock is lost by closing it here.
  close(fd);
  return SyncDirectory(std::filesystem::absolute(path).parent_path());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteJobStore>> SqliteJobStore::Open(
    const SqliteStoreOptions& options) {
  absl::StatusOr<std::unique_ptr<SqliteJobStore>> store = OpenFile(options);
  if (absl::IsDataLoss(store.status())) {
    return absl::DataLossError(absl::StrCat(
        "database ", options.path, " is damaged: ", store.status().message(),
        "; restore it from a backup, or move the state directory aside and start afresh"));
  }
  return store;
}

absl::StatusOr<std::unique_ptr<SqliteJobStore>> SqliteJobStore::OpenFile(
    const SqliteStoreOptions& options) {
  RETURN_IF_ERROR(MakePrivateFile(options.path));
  RETURN_IF_ERROR(CheckLog(options.path));
  std::error_code error;
  const bool is_new = std::filesystem::file_size(options.path, error) == 0;
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                   SqliteConnection::Open(options.path, /*read_only=*/false));
  if (is_new) {
    CheckPages(connection->handle());
  }
  RETURN_IF_ERROR(ConfigureWriter(*connection));
  RETURN_IF_ERROR(Migrate(*connection));
  if (options.max_database_bytes > 0) {
    ASSIGN_OR_RETURN(const int64_t page_bytes, ReadNumber(*connection, "page_size"));
    RETURN_IF_ERROR(connection->Execute(
        absl::StrCat("PRAGMA max_page_count=", options.max_database_bytes / page_bytes)));
  }
  std::unique_ptr<SqliteJobStore> store(new SqliteJobStore(options.path, std::move(connection)));
  RETURN_IF_ERROR(store->CheckKindOfPages());
  RETURN_IF_ERROR(store->CheckUnlessClean(options.is_backup ? "backup" : "unclean_stop"));
  RETURN_IF_ERROR(store->MarkClean(false));
  return store;
}

SqliteJobStore::SqliteJobStore(std::string path, std::unique_ptr<SqliteConnection> connection)
    : path_(std::move(path)),
      connection_(std::move(connection)),
      writer_(*connection_),
      checkpoint_at_pages_(kCheckpointPages) {
  sqlite3_wal_hook(connection_->handle(), &SqliteJobStore::OnLogGrown, this);
}

SqliteJobStore::~SqliteJobStore() {
  {
    MutexLock lock(mutex_);
    idle_readers_.clear();
  }
  if (!connection_->io_error().ok() || connection_->in_transaction()) {
    return;
  }
  absl::Status status = MarkClean(true);
  const int code = sqlite3_wal_checkpoint_v2(connection_->handle(), nullptr,
                                             SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  if (status.ok() && code != SQLITE_OK) {
    status = connection_->StatusOf(code, "checkpoint at close");
  }
  if (!status.ok()) {
    LOG(WARNING) << "store_close error=\"" << status.message() << "\"";
  }
}

absl::Status SqliteJobStore::CheckKindOfPages() {
  ASSIGN_OR_RETURN(const std::string checked,
                   connection_->Query("SELECT value FROM meta WHERE key = 'checked_pages'"));
  const bool has_checked_pages = HasCheckedPages(connection_->handle());
  if (checked == "1" && !has_checked_pages) {
    return absl::DataLossError("its header says that pages have no checksums, but they have");
  }
  return checked != "1" && has_checked_pages
             ? connection_->Execute("INSERT INTO meta(key, value) VALUES('checked_pages', 1)")
             : absl::OkStatus();
}

absl::Status SqliteJobStore::CheckUnlessClean(const char* reason) {
  ASSIGN_OR_RETURN(const std::string clean,
                   connection_->Query("SELECT value FROM meta WHERE key = 'clean'"));
  if (clean != "0") {
    return absl::OkStatus();
  }
  LOG(INFO) << "store_check reason=" << reason << " path=" << path_;
  ASSIGN_OR_RETURN(const std::string found, connection_->Query("PRAGMA quick_check(1)"));
  return found == "ok" ? absl::OkStatus() : absl::DataLossError(found);
}

absl::Status SqliteJobStore::MarkClean(bool clean) {
  return connection_->Execute(
      absl::StrCat("INSERT OR REPLACE INTO meta(key, value) VALUES('clean', ", clean ? 1 : 0, ")"));
}

int SqliteJobStore::OnLogGrown(void* store, sqlite3* /*database*/, const char* /*name*/,
                               int pages) {
  auto& self = *static_cast<SqliteJobStore*>(store);
  if (pages < self.log_pages_) {
    self.checkpoint_at_pages_ = kCheckpointPages;  // the log began anew
  }
  self.log_pages_ = pages;
  return SQLITE_OK;
}

absl::Status SqliteJobStore::Begin() {
  RETURN_IF_ERROR(connection_->io_error());
  RETURN_IF_ERROR(connection_->Execute("BEGIN IMMEDIATE"));
  writing_thread_.store(std::this_thread::get_id());
  return absl::OkStatus();
}

absl::Status SqliteJobStore::Commit() {
  absl::Status status = connection_->io_error();
  if (status.ok() && !connection_->in_transaction()) {
    status = absl::ResourceExhaustedError("sqlite gave the transaction up before its commit");
  }
  if (status.ok()) {
    status = connection_->Execute("COMMIT");
  }
  if (!status.ok()) {
    Rollback();
    return status;
  }
  writing_thread_.store(std::thread::id());
  return absl::OkStatus();
}

void SqliteJobStore::Rollback() {
  writing_thread_.store(std::thread::id());
  if (!connection_->in_transaction()) {
    return;  // SQLite rolls back by itself after some errors
  }
  const absl::Status status = connection_->Execute("ROLLBACK");
  if (!status.ok()) {
    LOG(ERROR) << "store_rollback error=\"" << status.message() << "\"";
  }
}

absl::Status SqliteJobStore::SetMark() {
  return connection_->Execute("SAVEPOINT mark");
}

absl::Status SqliteJobStore::ReleaseMark() {
  return connection_->Execute("RELEASE mark");
}

absl::Status SqliteJobStore::RollbackToMark() {
  return connection_->Execute("ROLLBACK TO mark; RELEASE mark");
}

absl::Status SqliteJobStore::Checkpoint() {
  if (log_pages_ < checkpoint_at_pages_) {
    return absl::OkStatus();
  }
  Failpoint("checkpoint_begun");
  // A reader may keep the log from beginning anew: do not try again at each commit.
  checkpoint_at_pages_ = log_pages_ + kCheckpointPages;
  const int code = sqlite3_wal_checkpoint_v2(connection_->handle(), nullptr,
                                             SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  Failpoint("checkpoint_ended");
  if (code == SQLITE_OK || code == SQLITE_BUSY) {
    return absl::OkStatus();
  }
  return connection_->StatusOf(code, "checkpoint");
}

absl::Status SqliteJobStore::EmptyLog() {
  const int code = sqlite3_wal_checkpoint_v2(connection_->handle(), nullptr,
                                             SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  return code == SQLITE_OK || code == SQLITE_BUSY ? absl::OkStatus()
                                                  : connection_->StatusOf(code, "empty the log");
}

absl::Status SqliteJobStore::InsertJob(const JobRecord& job) {
  return writer_.InsertJob(job);
}

absl::Status SqliteJobStore::InsertRows(const std::string& job_id,
                                        const std::vector<NewRow>& rows) {
  return writer_.InsertRows(job_id, rows);
}

absl::Status SqliteJobStore::FinishReceiving(const std::string& job_id, int64_t now_us) {
  return writer_.FinishReceiving(job_id, now_us);
}

absl::Status SqliteJobStore::DeleteJob(const std::string& job_id) {
  return writer_.DeleteJob(job_id);
}

absl::Status SqliteJobStore::PurgeResults(const std::string& job_id) {
  return writer_.PurgeResults(job_id);
}

absl::StatusOr<bool> SqliteJobStore::PurgeDeleted(int64_t max_rows) {
  return writer_.PurgeDeleted(max_rows);
}

absl::Status SqliteJobStore::SaveChecked(const CheckedRows& rows) {
  return writer_.SaveChecked(rows);
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteJobStore::Claim(const std::string& job_id,
                                                              int64_t limit,
                                                              const std::vector<int64_t>& preferred,
                                                              int64_t now_us) {
  return writer_.Claim(job_id, limit, preferred, now_us);
}

absl::StatusOr<int64_t> SqliteJobStore::Publish(const std::vector<FinishedRow>& rows,
                                                int64_t now_us) {
  return writer_.Publish(rows, now_us);
}

absl::Status SqliteJobStore::SaveProgress(const std::vector<RowProgress>& rows) {
  return writer_.SaveProgress(rows);
}

absl::Status SqliteJobStore::SaveReports(const std::vector<JobReport>& reports) {
  return writer_.SaveReports(reports);
}

absl::Status SqliteJobStore::Unclaim(const std::vector<RowProgress>& rows, bool count_attempt) {
  return writer_.Unclaim(rows, count_attempt);
}

absl::Status SqliteJobStore::PauseJob(const std::string& job_id) {
  return writer_.PauseJob(job_id);
}

absl::Status SqliteJobStore::ResumeJob(const std::string& job_id) {
  return writer_.ResumeJob(job_id);
}

absl::StatusOr<std::vector<std::string>> SqliteJobStore::ExpireJobs(int64_t now_us) {
  return writer_.ExpireJobs(now_us);
}

absl::Status SqliteJobStore::RequestCancel(const std::string& job_id) {
  return writer_.RequestCancel(job_id);
}

absl::Status SqliteJobStore::FailJob(const std::string& job_id, const std::string& error,
                                     int64_t now_us) {
  return writer_.FailJob(job_id, error, now_us);
}

absl::StatusOr<std::vector<std::string>> SqliteJobStore::Recover() {
  return writer_.Recover();
}

absl::StatusOr<SqliteJobStore::Reader> SqliteJobStore::BorrowReader() {
  {
    MutexLock lock(mutex_);
    if (!idle_readers_.empty()) {
      Reader reader = std::move(idle_readers_.back());
      idle_readers_.pop_back();
      return reader;
    }
  }
  Reader reader;
  ASSIGN_OR_RETURN(reader.connection, SqliteConnection::Open(path_, /*read_only=*/true));
  reader.queries = std::make_unique<SqliteReader>(*reader.connection);
  return reader;
}

template <typename Query>
auto SqliteJobStore::ReadWith(Query query) -> decltype(query(std::declval<SqliteReader&>())) {
  if (writing_thread_.load() == std::this_thread::get_id()) {
    return query(writer_.reader());
  }
  absl::StatusOr<Reader> reader = BorrowReader();
  if (!reader.ok()) {
    return reader.status();
  }
  auto answer = query(*reader->queries);
  MutexLock lock(mutex_);
  idle_readers_.push_back(*std::move(reader));
  return answer;
}

absl::StatusOr<JobRecord> SqliteJobStore::GetJob(const std::string& job_id) {
  return ReadWith([&](SqliteReader& reader) { return reader.GetJob(job_id); });
}

absl::StatusOr<JobRecord> SqliteJobStore::FindSubmission(const std::string& tenant,
                                                         const std::string& request_id) {
  return ReadWith([&](SqliteReader& reader) { return reader.FindSubmission(tenant, request_id); });
}

absl::StatusOr<std::vector<JobRecord>> SqliteJobStore::ListJobs(const JobFilter& filter,
                                                                int64_t limit) {
  return ReadWith([&](SqliteReader& reader) { return reader.ListJobs(filter, limit); });
}

absl::StatusOr<TenantUsage> SqliteJobStore::ReadUsage(const std::string& tenant) {
  return ReadWith([&](SqliteReader& reader) { return reader.ReadUsage(tenant); });
}

absl::StatusOr<std::map<JobState, int64_t>> SqliteJobStore::CountJobs() {
  return ReadWith([](SqliteReader& reader) { return reader.CountJobs(); });
}

absl::StatusOr<std::vector<JobRecord>> SqliteJobStore::ActiveJobs() {
  return ReadWith([](SqliteReader& reader) { return reader.ActiveJobs(); });
}

absl::StatusOr<std::vector<StoredResult>> SqliteJobStore::ReadResults(const std::string& job_id,
                                                                      int64_t after_seq,
                                                                      int64_t max_bytes) {
  return ReadWith(
      [&](SqliteReader& reader) { return reader.ReadResults(job_id, after_seq, max_bytes); });
}

absl::StatusOr<std::vector<StoredResult>> SqliteJobStore::ReadResultsInInputOrder(
    const std::string& job_id, int64_t first_index, int64_t max_bytes) {
  return ReadWith([&](SqliteReader& reader) {
    return reader.ReadResultsInInputOrder(job_id, first_index, max_bytes);
  });
}

absl::StatusOr<std::vector<StoredRow>> SqliteJobStore::ReadRows(const std::string& job_id,
                                                                int64_t first_index,
                                                                int64_t limit) {
  return ReadWith(
      [&](SqliteReader& reader) { return reader.ReadRows(job_id, first_index, limit); });
}

absl::StatusOr<std::vector<StoredRow>> SqliteJobStore::NeverClaimed(const std::string& job_id,
                                                                    int64_t first_index,
                                                                    int64_t end_index,
                                                                    int64_t limit) {
  return ReadWith([&](SqliteReader& reader) {
    return reader.NeverClaimed(job_id, first_index, end_index, limit);
  });
}

absl::StatusOr<std::vector<std::string>> SqliteJobStore::EndedBefore(int64_t end_time_us,
                                                                     bool purged, int64_t limit) {
  return ReadWith(
      [&](SqliteReader& reader) { return reader.EndedBefore(end_time_us, purged, limit); });
}

absl::StatusOr<std::vector<ClaimedRow>> SqliteJobStore::NextUnfinished(const std::string& job_id,
                                                                       int64_t limit) {
  return ReadWith([&](SqliteReader& reader) -> absl::StatusOr<std::vector<ClaimedRow>> {
    ASSIGN_OR_RETURN(const JobRow job, reader.FindJob(job_id));
    return reader.PendingRows(job, job.record.counts.total, limit);
  });
}

absl::StatusOr<std::vector<std::string>> SqliteJobStore::InputFiles() {
  return ReadWith([](SqliteReader& reader) { return reader.InputFiles(); });
}

absl::Status SqliteJobStore::Backup(const std::string& target_path) {
  const int fd = open(target_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return errno == EEXIST
               ? absl::AlreadyExistsError(absl::StrCat("backup ", target_path, " exists"))
               : absl::FailedPreconditionError(
                     absl::StrCat("create backup ", target_path, ": ", strerror(errno)));
  }
  close(fd);
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> source,
                   SqliteConnection::Open(path_, /*read_only=*/true));
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> target,
                   SqliteConnection::Open(target_path, /*read_only=*/false));
  // A read of the header tells of which kind the pages are.
  RETURN_IF_ERROR(source->Query("PRAGMA user_version").status());
  if (HasCheckedPages(source->handle())) {
    CheckPages(target->handle());
  }
  sqlite3_backup* const backup =
      sqlite3_backup_init(target->handle(), "main", source->handle(), "main");
  if (backup == nullptr) {
    return target->StatusOf(sqlite3_errcode(target->handle()), "begin backup");
  }
  // All pages in one step: one snapshot, whatever is written meanwhile.
  const int copied = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (copied != SQLITE_DONE || finished != SQLITE_OK) {
    return target->StatusOf(copied != SQLITE_DONE ? copied : finished, "copy to backup");
  }
  return absl::OkStatus();
}

std::string SqliteJobStore::description() const {
  return absl::StrCat("sqlite ", sqlite3_libversion());
}

}  // namespace nightshift
