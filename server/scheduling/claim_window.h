// ClaimWindow: in which order the rows of jobs are claimed. A job of 10^7 rows is not sorted; of the
// rows that are checked and were never claimed, as many as the job's part of the window come next,
// the longest predicted first and those that begin alike together.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/kept_prompts.h"
#include "server/scheduling/output_lengths.h"
#include "server/scheduling/wakeup.h"
#include "server/store/store_actor.h"

namespace nightshift {

// What rows are looked for with. A prompt whose shape is not known has its bytes' length.
struct RowSearch {
  JobContextPtr job;
  uint64_t text_digest = 0;
  OutputLengths lengths;
  int64_t first_index = 0;
  int64_t end_index = 0;
  int64_t limit = 0;
};

struct FoundRows {
  std::vector<int64_t> indices;  // as they should run
  int64_t next_index = 0;        // where the search goes on
};

// Reads the store and `kept` in short pieces. Errors: the store's.
absl::StatusOr<FoundRows> FindRows(const RowSearch& search, JobStore& store, KeptPrompts& kept);

// Rows are looked for on the store's readers, beside the sweeps. One thread, but for these.
class ClaimWindow {
 public:
  // `max_rows` of all jobs together, 8 bytes each; a job has at least kLeastRows or all of it. All must
  // outlive the window, `wakeup` is told when rows were found.
  ClaimWindow(int64_t max_rows, StoreActor& store, KeptPrompts& kept, Wakeup& wakeup)
      : max_rows_(max_rows), store_(store), kept_(kept), wakeup_(wakeup) {}
  // Waits for searches that are on their way.
  ~ClaimWindow();
  ClaimWindow(const ClaimWindow&) = delete;
  ClaimWindow& operator=(const ClaimWindow&) = delete;

  // Begins to look for the job's next rows if fewer than are claimed next wait. `checked`: rows
  // before it are; `num_jobs` share the window.
  void LookAhead(JobContextPtr job, int64_t checked, uint64_t text_digest,
                 const OutputLengths& lengths, int64_t num_jobs);
  // Rows of the job are on their way, and fewer than `limit` are there.
  bool MustWait(const std::string& job_id, int64_t limit);
  // Up to `limit` rows in order; fewer where no more are known of.
  std::vector<int64_t> Take(const std::string& job_id, int64_t limit);
  // Rows that were taken and not claimed go first.
  void PutBack(const std::string& job_id, const std::vector<int64_t>& rows);
  // Rows of the job are looked for anew.
  void Forget(const std::string& job_id);
  void Clear();

 private:
  static constexpr int64_t kLeastRows = 1024;

  // Shared with the search that is on its way: the job may be forgotten meanwhile.
  struct Rows {
    std::deque<int64_t> indices;
    int64_t next_index = 0;
    bool is_searching = false;
  };

  void Search(const RowSearch& search, const std::shared_ptr<Rows>& rows, JobStore& store);

  const int64_t max_rows_;
  StoreActor& store_;
  KeptPrompts& kept_;
  Wakeup& wakeup_;
  Mutex mutex_;
  CondVar searched_;
  int64_t num_searches_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<Rows>> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
