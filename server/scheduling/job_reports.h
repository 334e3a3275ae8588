// JobReports: what the sweeps of each job did, summed up. A report is durable with the job's
// results and goes on after a restart.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/schedule/timeline.h"
#include "server/store/job_store.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

v1::Report MakeReport(const SweepTimes& times);
// What MakeReport was made from; lanes that this version does not know are left out.
SweepTimes TimesOf(const v1::Report& report);

// One thread.
class JobReports {
 public:
  // Goes on with a job whose report the store has (its bytes; empty for none). Bytes that do not
  // parse count as none.
  void Begin(const std::string& job_id, const std::string& stored);
  // Counts a sweep for each of these jobs, as far as they have begun.
  void Add(const std::set<std::string>& job_ids, const SweepTimes& sweep);
  // Those that have changed since they were last taken, whole, for the store.
  std::vector<JobReport> TakeChanged();
  // Forgets a job that has ended, and says so in one line of the log.
  void End(const std::string& job_id);

 private:
  std::map<std::string, SweepTimes> times_;
  std::set<std::string> changed_;
};

}  // namespace nightshift
