// SqliteReader: the reading half of the SQLite store, over one connection. Each call is one short
// read: a long one would keep the log from being emptied.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/store/job_store.h"
#include "server/store/sqlite_statement.h"

namespace nightshift {

// CRC32C of a stored body.
int64_t BodyCrc(absl::string_view body);

// A job with what only the store needs to know.
struct JobRow {
  int64_t number = 0;
  int64_t next_index = 0;  // no row below was never claimed
  JobRecord record;
};

// One thread at a time. `connection` must outlive it.
class SqliteReader {
 public:
  explicit SqliteReader(SqliteConnection& connection) : connection_(connection) {}

  // In any state, kReceiving included. NOT_FOUND, DATA_LOSS.
  absl::StatusOr<JobRow> FindJob(const std::string& job_id);

  absl::StatusOr<JobRecord> GetJob(const std::string& job_id);
  absl::StatusOr<JobRecord> FindSubmission(const std::string& tenant,
                                           const std::string& request_id);
  absl::StatusOr<std::vector<JobRecord>> ListJobs(const JobFilter& filter, int64_t limit);
  absl::StatusOr<TenantUsage> ReadUsage(const std::string& tenant);
  absl::StatusOr<std::map<JobState, int64_t>> CountJobs();
  absl::StatusOr<std::vector<JobRecord>> ActiveJobs();
  absl::StatusOr<std::vector<StoredResult>> ReadResults(const std::string& job_id,
                                                        int64_t after_seq, int64_t max_bytes);
  absl::StatusOr<std::vector<StoredResult>> ReadResultsInInputOrder(const std::string& job_id,
                                                                    int64_t first_index,
                                                                    int64_t max_bytes);
  absl::StatusOr<std::vector<StoredRow>> ReadRows(const std::string& job_id, int64_t first_index,
                                                  int64_t limit);
  absl::StatusOr<std::vector<StoredRow>> NeverClaimed(const std::string& job_id,
                                                      int64_t first_index, int64_t end_index,
                                                      int64_t limit);
  absl::StatusOr<std::vector<std::string>> EndedBefore(int64_t end_time_us, bool purged,
                                                       int64_t limit);
  // Rows given back, then fresh ones below `end_index`, with the attempts they have had and their
  // progress.
  absl::StatusOr<std::vector<ClaimedRow>> PendingRows(const JobRow& job, int64_t end_index,
                                                      int64_t limit);
  absl::StatusOr<std::vector<ClaimedRow>> ReturnedRows(const JobRow& job, int64_t limit);
  absl::StatusOr<std::vector<ClaimedRow>> FreshRows(const JobRow& job, int64_t end_index,
                                                    int64_t limit);
  // Those of `indices` that are fresh and below `end_index`, in this order, at most `limit`.
  absl::StatusOr<std::vector<ClaimedRow>> FreshRowsOf(const JobRow& job, int64_t end_index,
                                                      const std::vector<int64_t>& indices,
                                                      int64_t limit);
  // The first row from `first_index` on that is fresh; all rows of the job when none is.
  absl::StatusOr<int64_t> NextFresh(const JobRow& job, int64_t first_index);
  absl::StatusOr<std::vector<std::string>> InputFiles();

 private:
  // In any state but kReceiving.
  absl::StatusOr<JobRow> FindVisibleJob(const std::string& job_id);
  // Reads on; a job that fails its checksum is logged and left out.
  absl::StatusOr<std::vector<JobRecord>> ReadJobs(SqliteStatement& statement);
  absl::StatusOr<std::vector<StoredRow>> ReadStoredRows(SqliteStatement& statement);
  absl::Status AppendPendingRows(SqliteStatement& statement, const std::string& job_id,
                                 std::vector<ClaimedRow>& rows);

  SqliteConnection& connection_;
};

}  // namespace nightshift
