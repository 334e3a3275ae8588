// JobReports: what the sweeps of each job did and what was predicted of them, summed up. A report
// is durable with the job's results and goes on after a restart.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/policy/sweep_costs.h"
#include "engine/schedule/timeline.h"
#include "server/store/job_store.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Of the engine's memory pools, in bytes: of the device and of the host (all memory where there is
// only one), and what keys and values of held requests take of both.
struct PoolBytes {
  int64_t device = 0;
  int64_t host = 0;
  int64_t kv = 0;
};

// What the plan that a sweep ran under had said.
struct PlannedSweep {
  LaneSeconds lanes = {};
  double wall_seconds = 0.0;
  // Of the plan as a whole.
  PoolBytes pools;
  std::string constraint;  // "waits for read 81 % of the time"
  int64_t requests = 0;
  double seconds = 0.0;
  double tokens_per_s = 0.0;
};

struct ReportedSweep {
  SweepTimes times;
  int64_t tokens = 0;  // of prompts and sampled
  PoolBytes pools;
  std::optional<PlannedSweep> planned;
};

// Sums over the sweeps of a job.
struct JobWork {
  SweepTimes times;
  // Of those that were planned:
  SweepTimes compared;
  int64_t tokens = 0;
  PoolBytes pools;       // the most
  PlannedSweep planned;  // lanes and wall are sums, pools the most, the rest the last plan's

  void Add(const ReportedSweep& sweep);
};

v1::Report MakeReport(const JobWork& work);
// What MakeReport was made from; lanes and pools that this version does not know are left out.
JobWork WorkOf(const v1::Report& report);

// One thread.
class JobReports {
 public:
  // Goes on with a job whose report the store has (its bytes; empty for none). Bytes that do not
  // parse count as none.
  void Begin(const std::string& job_id, const std::string& stored);
  // Counts a sweep for each of these jobs, as far as they have begun.
  void Add(const std::set<std::string>& job_ids, const ReportedSweep& sweep);
  // Those that have changed since they were last taken, whole, for the store.
  std::vector<JobReport> TakeChanged();
  // Forgets a job that has ended, and says so in one line of the log. Predicted / observed time of
  // its sweeps; nothing where none was planned.
  std::optional<double> End(const std::string& job_id);

 private:
  std::map<std::string, JobWork> work_;
  std::set<std::string> changed_;
};

}  // namespace nightshift
