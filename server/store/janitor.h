// Janitor: the thread that clears away what is not kept any more: rows of deleted jobs, piece by
// piece, their input files, and jobs whose time of retention is over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/store/store_actor.h"

namespace nightshift {

struct JanitorOptions {
  std::string state_directory;
  // After a job's end: for so long its input and results are kept, and its record.
  int64_t keep_results_us = int64_t{30} * 24 * 3600 * 1'000'000;
  int64_t keep_records_us = int64_t{365} * 24 * 3600 * 1'000'000;
  int64_t interval_us = 60'000'000;  // between looks at the clock
  int64_t rows_per_write = 2000;     // other writes come between
  std::function<void()> on_round = [] {};  // on the janitor's thread, each interval
};

// The order of every removal is: the record, its commit, then the file; what a crash leaves in
// between is a file of no job, which the next start removes. Thread-safe.
class Janitor {
 public:
  // `store` and `clock` must outlive it. RecoverState has run.
  Janitor(JanitorOptions options, StoreActor& store, const Clock& clock);
  // Ends after the write that is on its way.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // A job is gone: removes its input file (relative to the state directory; empty for none) and
  // frees its rows, soon.
  void Remove(const std::string& input_file);
  // Between these no input file is removed, so that files of jobs can be copied. They nest.
  void HoldFiles();
  void ReleaseFiles();

 private:
  void Work();
  bool stopping();
  // One look at everything that may be due.
  void Round();
  void EndRetention();
  void Purge();
  void RemoveFiles();

  const JanitorOptions options_;
  StoreActor& store_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool due_ ABSL_GUARDED_BY(mutex_) = true;
  int held_ ABSL_GUARDED_BY(mutex_) = 0;
  bool removing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> files_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nightshift
