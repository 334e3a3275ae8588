// MemoryJobStore: the JobStore of tests. A MemoryDisk outlives it, so that a store can be opened
// again on what a crashed one had committed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"
#include "server/store/job_store.h"

namespace nightshift {

struct MemoryRow {
  NewRow input;
  RowState state = RowState::kPending;
  int32_t attempt = 0;
  bool returned = false;  // a pending one that was claimed before
  int64_t seq = 0;  // of its result; 0 for none
  std::string progress;
};

struct MemoryJob {
  JobRecord record;
  std::vector<MemoryRow> rows;
  std::vector<StoredResult> results;  // seq is the position + 1
};

struct MemoryDisk {
  std::map<std::string, MemoryJob> jobs;
};

// Readers of other threads wait while a transaction is open. Thread rules as JobStore.
class MemoryJobStore : public JobStore {
 public:
  explicit MemoryJobStore(MemoryDisk& disk) : disk_(disk) {}
  // What is not committed is lost.
  ~MemoryJobStore() override;

  // The next commits answer with these, one each, and keep nothing.
  void FailNextCommits(std::vector<absl::Status> statuses);
  // How many transactions were committed.
  int64_t num_commits();

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  absl::Status SetMark() override;
  absl::Status ReleaseMark() override;
  absl::Status RollbackToMark() override;
  absl::Status Checkpoint() override;
  absl::Status EmptyLog() override { return absl::OkStatus(); }

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
  std::string description() const override { return "memory"; }

 private:
  // Jobs as they were before they were touched; none for those that did not exist.
  using Undo = std::map<std::string, std::optional<MemoryJob>>;

  // Waits until no other thread's transaction is open, and holds the lock of the disk.
  class Access;
  void Touch(const std::string& job_id);
  void UndoAll(Undo& undo);
  // nullptr when there is none. `visible`: not in kReceiving.
  MemoryJob* Find(const std::string& job_id, bool visible);
  absl::StatusOr<MemoryJob*> FindToChange(const std::string& job_id);
  absl::StatusOr<MemoryJob*> FindMeant(const std::string& job_id, const std::string& job_uid);
  // FindToChange of a job that is not in kReceiving.
  absl::StatusOr<MemoryJob*> FindVisibleToChange(const std::string& job_id);
  std::vector<ClaimedRow> PendingRows(const std::string& job_id, int64_t end_index,
                                      const std::vector<int64_t>& preferred, int64_t limit);

  MemoryDisk& disk_;
  Mutex mutex_;
  CondVar transaction_ended_;
  std::thread::id writing_thread_ ABSL_GUARDED_BY(mutex_);
  int64_t num_commits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<absl::Status> commit_faults_ ABSL_GUARDED_BY(mutex_);
  // Store thread only.
  Undo undo_;
  Undo mark_undo_;
  bool marked_ = false;
};

}  // namespace nightshift
