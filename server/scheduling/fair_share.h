// FairShare: which job's rows are taken next, so that jobs and tenants get equal shares of the
// tokens. Decides only: no clock, thread, file or lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace nightshift {

// A job, as the shares see it.
struct ShareJob {
  std::string id;
  std::string tenant;
  int32_t priority = 0;
  double tenant_weight = 1.0;  // of the tenant's jobs together
  bool wants = false;          // has rows to be taken
};

// Start-time fair queueing (Goyal, Vin and Cheng 1996): each job has a virtual time that advances
// with the tokens it takes, divided by its weight; the job that is the furthest behind goes next.
// A job that comes, or comes back, starts at the virtual time of what is being served: it neither
// waits behind a long one nor catches up on what it did not ask for. Priority classes are strict;
// the jobs of a tenant in a class share the tenant's weight. One thread.
class FairShare {
 public:
  // Which of `jobs` (in order of age) goes next; nothing when none wants.
  std::optional<size_t> Next(std::span<const ShareJob> jobs);
  // Lets jobs[chosen] take `tokens`; the tag under which its rows go: the lower, the sooner.
  double Take(std::span<const ShareJob> jobs, size_t chosen, double tokens);
  // Rows with this tag are being served.
  void Serve(double tag);
  // None of the job's rows is in hand any more: what it took and was not served is forgotten.
  void Return(const std::string& job_id);
  // The job is gone.
  void End(const std::string& job_id);

 private:
  struct State {
    double virtual_time = 0;
    bool wanted = false;
  };

  double served_ = 0;  // the virtual time of all
  std::map<std::string, State> jobs_;
};

}  // namespace nightshift
