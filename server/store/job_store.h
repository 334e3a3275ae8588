// JobStore: jobs, their input rows and their results, durably. Two implementations: SQLite
// (sqlite_job_store.h) and the tests' memory store; one conformance suite runs over both.
//
// Storage shape: the input of a job is one immutable file (its bytes as uploaded) with an index of
// rows (offset, length) here; results are rows with inline bodies. Bodies are opaque bytes to the
// store (serialised nightshift.v1.Result without seq), each kept with its CRC32C.
//
// Threads: writing methods are called by one thread only (the StoreActor's), inside a transaction
// that the actor opens; reading methods may be called from any thread and see what is committed;
// on the writing thread, inside the transaction, they see its changes too.
// Errors, everywhere: NOT_FOUND (job), DATA_LOSS (a record fails its checksum, named),
// RESOURCE_EXHAUSTED (disk full), INTERNAL (I/O error on commit: the daemon must exit and recover).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

// As nightshift.v1.JobState, plus kReceiving: rows are being inserted, the job is invisible.
enum class JobState : uint8_t {
  kReceiving = 0,
  kQueued = 1,
  kValidating = 2,  // queued, and not all of its rows are checked
  kRunning = 3,
  kPaused = 4,
  kCancelling = 5,  // its rows are being ended; it becomes end_state
  kSucceeded = 6,
  kFailed = 7,
  kCancelled = 8,
  kExpired = 9,
};
bool IsTerminal(JobState state);
// kValidating, kQueued or kRunning.
bool IsRunnable(JobState state);
// Runnable, or paused.
bool IsOpen(JobState state);

enum class RowState : uint8_t {
  kPending = 0,
  kRunning = 1,
  kSucceeded = 2,
  kFailed = 3,
  kCancelled = 4,
  kExpired = 6,  // 5 is a store's own
};

struct RowCounts {
  int64_t total = 0;
  int64_t pending = 0;
  int64_t running = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;
  int64_t cancelled = 0;
  int64_t expired = 0;
};

struct JobRecord {
  // With the tenant (server/rpc/job_view.h, JobKey): the job_id, the client's or ours.
  std::string id;
  std::string uid;  // UUID, ours
  std::string tenant;
  std::string request_id;   // idempotency key, unique with the tenant when not empty
  std::string fingerprint;  // hash of what was submitted: tells a retry from a different body
  std::string model;
  std::string spec;  // serialised nightshift.v1.JobSpec, defaults resolved (seed drawn)
  int32_t priority = 2;
  int32_t input_format = 0;  // nightshift.v1.InputFormat
  std::string input_file;    // relative to the state directory; empty for none
  int64_t input_bytes = 0;   // of the input file
  int64_t result_bytes = 0;  // of the results' bodies
  std::string retry_of;      // id, as above, of the job whose failed rows these are; empty for none
  std::string after_uid;     // of the job that it waits for; empty for none
  JobState state = JobState::kReceiving;
  JobState end_state = JobState::kCancelled;  // of a kCancelling job: what it becomes
  RowCounts counts;
  int64_t checked = 0;  // its first so many rows were checked; the others are not claimed
  // Of the checked rows that can run.
  int64_t checked_prompts = 0;
  int64_t checked_prompt_tokens = 0;
  int64_t longest_prompt_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt tokens
  int64_t last_seq = 0;
  int64_t create_time_us = 0;  // wall clock
  int64_t expire_time_us = 0;  // 0: never
  int64_t start_time_us = 0;   // 0: not yet
  int64_t end_time_us = 0;     // 0: not yet
  bool purged = false;         // its input, rows and results are gone
  std::string error;           // serialised google.rpc.Status of a FAILED job
  std::string report;          // opaque, as given to SaveReports; empty for none
};

// In place of a row's CRC: of a row whose CRC was not kept.
inline constexpr int64_t kNoCrc = -1;

// One input row at acceptance. A row that can never run carries its result already.
struct NewRow {
  int64_t index = 0;   // dense from 0
  int64_t offset = 0;  // of its bytes in the input file
  int64_t length = 0;
  int64_t line = 0;                       // 1-based, 0 for no lines
  int64_t crc = kNoCrc;                   // CRC32C of its bytes
  std::optional<std::string> error_body;  // published at acceptance as this row's result
};

// A row taken for execution, with what an earlier run had generated (durable progress). The id of a
// deleted job may be another's by now: here and below `job_uid` tells which one is meant; empty is
// whichever has the id.
struct ClaimedRow {
  std::string job_id;
  std::string job_uid = {};
  int64_t index = 0;
  int64_t offset = 0;
  int64_t length = 0;
  int64_t line = 0;
  int64_t crc = kNoCrc;  // as given to InsertRows
  int32_t attempt = 1;   // this one included
  std::string progress;  // opaque, as given to SaveProgress; empty for none
};

// What a check of input rows found.
struct CheckedRows {
  std::string job_id;
  std::string job_uid = {};
  int64_t end_index = 0;  // the rows below are checked
  // Of the rows that this check adds and that can run.
  int64_t prompts = 0;
  int64_t prompt_tokens = 0;
  int64_t longest_prompt_tokens = 0;
};

struct FinishedRow {
  std::string job_id;
  std::string job_uid = {};
  int64_t index = 0;
  RowState outcome = RowState::kSucceeded;  // a terminal one
  std::string body;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;
};

struct RowProgress {
  std::string job_id;
  std::string job_uid = {};
  int64_t index = 0;
  std::string progress;
};

// What is known of a job's run so far.
struct JobReport {
  std::string job_id;
  std::string report;
};

struct StoredResult {
  int64_t seq = 0;
  int64_t index = 0;  // of its row
  std::string body;
};

// Where a row lies in the job's input.
struct StoredRow {
  int64_t index = 0;
  int64_t offset = 0;
  int64_t length = 0;
  int64_t line = 0;  // as in NewRow
  bool has_result = false;
  int64_t crc = kNoCrc;
};

// What a tenant has in the store.
struct TenantUsage {
  int64_t active_jobs = 0;      // not terminal; kReceiving too
  int64_t queued_requests = 0;  // of these, rows without a result
  int64_t stored_bytes = 0;     // inputs and results of its jobs, but for what was purged
};

struct JobFilter {
  std::optional<std::string> tenant;  // nothing: of all
  std::optional<JobState> state;
  int64_t from_create_time_us = 0;
  // Page position: jobs strictly older than (create_time_us, id) in newest-first order.
  int64_t before_create_time_us = INT64_MAX;
  std::string before_id;
};

class JobStore {
 public:
  virtual ~JobStore() = default;

  // --- writing: StoreActor only ---
  virtual absl::Status Begin() = 0;
  // Durable when this returns OK.
  virtual absl::Status Commit() = 0;
  virtual void Rollback() = 0;
  // Nested undo: what a failing write did since the mark is taken back, its neighbours stay.
  // One mark at a time: Set, then Release or RollbackTo. An error means that the transaction is
  // lost as a whole.
  virtual absl::Status SetMark() = 0;
  virtual absl::Status ReleaseMark() = 0;
  virtual absl::Status RollbackToMark() = 0;
  // Moves the log into the database between commits, when there is enough of it.
  virtual absl::Status Checkpoint() = 0;
  // Does so however little there is, and gives the log's space back, unless a reader needs it.
  virtual absl::Status EmptyLog() = 0;

  // Inserts a job in kReceiving; its states, counts, sums, result_bytes, last_seq and start, end,
  // error, purged and report, and what was checked, are not taken from `job`. ALREADY_EXISTS: id,
  // or (tenant, request_id).
  virtual absl::Status InsertJob(const JobRecord& job) = 0;
  // Appends rows to a kReceiving job, their indices continuing those before (INTERNAL otherwise);
  // rows with error_body are published at once. FAILED_PRECONDITION in another state.
  virtual absl::Status InsertRows(const std::string& job_id, const std::vector<NewRow>& rows) = 0;
  // kReceiving -> kValidating, or kSucceeded when no row is left to run.
  virtual absl::Status FinishReceiving(const std::string& job_id, int64_t now_us) = 0;
  // From here on the job, its rows and its results are gone for every call, and its id and
  // request_id are free. In any state. PurgeDeleted frees the space. Its input file is the caller's
  // to remove, after the commit.
  virtual absl::Status DeleteJob(const std::string& job_id) = 0;
  // Forgets input, rows and results of a terminal job, whose record stays. Nothing for a job that
  // is not terminal or was purged.
  virtual absl::Status PurgeResults(const std::string& job_id) = 0;
  // Frees about `max_rows` rows and results of deleted and purged jobs: one step, so that other
  // writes come between. False when nothing is left to free.
  virtual absl::StatusOr<bool> PurgeDeleted(int64_t max_rows) = 0;

  // Rows of the job were checked; kValidating -> kQueued when they are the last. Nothing for a job
  // that is gone, or whose rows below end_index were checked before.
  virtual absl::Status SaveChecked(const CheckedRows& rows) = 0;
  // Takes up to `limit` pending rows of the job that were checked, raising their attempts durably:
  // those given back first, in index order, then those of `preferred` that were never claimed, in
  // its order, then others in index order. The first claim makes the job kRunning. Nothing for a
  // job that is not kValidating, kQueued or kRunning.
  virtual absl::StatusOr<std::vector<ClaimedRow>> Claim(const std::string& job_id, int64_t limit,
                                                        const std::vector<int64_t>& preferred,
                                                        int64_t now_us) = 0;
  // Publishes results with dense sequence numbers, counters and state in this transaction. A row
  // that is terminal already keeps its first result: the later one is dropped and counted in the
  // return value, as are rows of jobs that are gone. When the last row ends the job becomes
  // kSucceeded, or if it was kCancelling its end_state.
  virtual absl::StatusOr<int64_t> Publish(const std::vector<FinishedRow>& rows, int64_t now_us) = 0;
  // Keeps what running rows have generated so far, in place of what was kept before. Rows that do
  // not run are skipped.
  virtual absl::Status SaveProgress(const std::vector<RowProgress>& rows) = 0;
  // Keeps each job's report in place of the one before, whatever its state. Jobs that are gone are
  // skipped.
  virtual absl::Status SaveReports(const std::vector<JobReport>& reports) = 0;
  // Gives claimed rows back (suspended, drained); an attempt that was no fault is not counted.
  // Empty progress keeps what was saved before. Rows that do not run are skipped.
  virtual absl::Status Unclaim(const std::vector<RowProgress>& rows, bool count_attempt) = 0;
  // kValidating, kQueued or kRunning -> kPaused: no row of it is claimed. Idempotent for kPaused;
  // FAILED_PRECONDITION for jobs that end or have ended.
  virtual absl::Status PauseJob(const std::string& job_id) = 0;
  // kPaused -> what it was: kRunning if it had begun, else kQueued or kValidating. Idempotent for
  // these; FAILED_PRECONDITION for jobs that end or have ended.
  virtual absl::Status ResumeJob(const std::string& job_id) = 0;
  // An open job (kValidating, kQueued, kRunning or kPaused) -> kCancelling. Idempotent for
  // kCancelling (also when it ends for another reason) and kCancelled; FAILED_PRECONDITION for
  // other terminal states.
  virtual absl::Status RequestCancel(const std::string& job_id) = 0;
  // Begins to end every open job whose expire time has come as kExpired, as FailJob does: it is
  // kCancelling. Returns their ids.
  virtual absl::StatusOr<std::vector<std::string>> ExpireJobs(int64_t now_us) = 0;
  // Begins to end the job as kFailed with this error: it is kCancelling until results of its
  // unfinished rows are published (NextUnfinished lists them), then kFailed. At once when no row is
  // left. Nothing for a job that is kPaused, kCancelling or terminal.
  virtual absl::Status FailJob(const std::string& job_id, const std::string& error,
                               int64_t now_us) = 0;
  // After a restart: every row that was running is pending again, without counting the attempt;
  // kReceiving jobs are deleted, as DeleteJob does. Returns their input files.
  virtual absl::StatusOr<std::vector<std::string>> Recover() = 0;

  // --- reading: any thread; jobs in kReceiving are seen by FindSubmission and InputFiles only ---
  virtual absl::StatusOr<JobRecord> GetJob(const std::string& job_id) = 0;
  virtual absl::StatusOr<JobRecord> FindSubmission(const std::string& tenant,
                                                   const std::string& request_id) = 0;
  // Newest first.
  virtual absl::StatusOr<std::vector<JobRecord>> ListJobs(const JobFilter& filter,
                                                          int64_t limit) = 0;
  virtual absl::StatusOr<TenantUsage> ReadUsage(const std::string& tenant) = 0;
  // How many jobs are in each state; states of none are left out.
  virtual absl::StatusOr<std::map<JobState, int64_t>> CountJobs() = 0;
  // Jobs that are not terminal, in the order they should run: priority (higher first), then age.
  virtual absl::StatusOr<std::vector<JobRecord>> ActiveJobs() = 0;
  // Results with seq > after_seq in order, until max_bytes of bodies (at least one).
  virtual absl::StatusOr<std::vector<StoredResult>> ReadResults(const std::string& job_id,
                                                                int64_t after_seq,
                                                                int64_t max_bytes) = 0;
  // The same in the order of rows: results of the rows from first_index on, up to the first that
  // has none.
  virtual absl::StatusOr<std::vector<StoredResult>> ReadResultsInInputOrder(
      const std::string& job_id, int64_t first_index, int64_t max_bytes) = 0;
  // Up to `limit` rows from first_index on, in order.
  virtual absl::StatusOr<std::vector<StoredRow>> ReadRows(const std::string& job_id,
                                                          int64_t first_index, int64_t limit) = 0;
  // Up to `limit` rows at [first_index, end_index) that have no result and were never claimed, in
  // order.
  virtual absl::StatusOr<std::vector<StoredRow>> NeverClaimed(const std::string& job_id,
                                                              int64_t first_index,
                                                              int64_t end_index,
                                                              int64_t limit) = 0;
  // Ids of terminal jobs that ended before `end_time_us`, the oldest first; `purged` as asked.
  virtual absl::StatusOr<std::vector<std::string>> EndedBefore(int64_t end_time_us, bool purged,
                                                               int64_t limit) = 0;
  // Up to `limit` rows that have no result yet and are not running; those given back first.
  virtual absl::StatusOr<std::vector<ClaimedRow>> NextUnfinished(const std::string& job_id,
                                                                 int64_t limit) = 0;
  // Input files of all jobs, but for those that were purged: what must stay when stray files are
  // swept.
  virtual absl::StatusOr<std::vector<std::string>> InputFiles() = 0;
  virtual std::string description() const = 0;  // "sqlite 3.40.1"
};

}  // namespace nightshift
