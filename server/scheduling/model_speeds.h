// ModelSpeeds: what the tokens of models take, learned while they are loaded, for jobs that wait
// for another model than the loaded one. Decides only: no clock, thread, file or lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "kernels/dtype.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/queue_workload.h"
#include "server/scheduling/time_left.h"

namespace nightshift {

// One thread.
class ModelSpeeds {
 public:
  void Loaded(const ModelKey& key, int64_t parameters, double load_seconds);
  // Of the loaded model, as it is known now; `uncertainty` is the share that may be wrong.
  void Note(const ModelKey& key, const TokenCosts& costs, double uncertainty);

  bool Knows(const ModelKey& key) const;
  // Of the last time; of a model that was never loaded, of the one that is.
  double LoadSeconds(const ModelKey& key) const;
  // What is left of a job, if it had the engine to itself. One of a model that is not known is
  // taken to cost as much for each parameter as the loaded one; it may be a third or three times
  // that. Nothing is known of any model: 0.
  TimeLeft Alone(const ModelKey& key, int64_t parameters, const TokensLeft& left) const;

 private:
  struct Speed {
    int64_t parameters = 0;
    double load_seconds = 0.0;
    bool is_known = false;
    TokenCosts costs;
    double uncertainty = 0.0;
  };

  const Speed& SpeedOf(const ModelKey& key) const;

  std::map<ModelKey, Speed> speeds_;
  Speed loaded_;
};

}  // namespace nightshift
