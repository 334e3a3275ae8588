// Runner: the thread that drives the engine. Chooses the model, claims rows, tokenizes them on its
// pool, forms the block, sweeps, publishes, and keeps progress durable. It decides; it never waits
// for anything but the engine and the store.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/scheduling/model_catalog.h"
#include "server/store/store_actor.h"

namespace nightshift {

// Creates an engine for a pack; the tests put a fake one here.
using EngineFactory =
    std::function<absl::StatusOr<std::unique_ptr<Engine>>(const EngineOptions& options)>;

struct RunnerOptions {
  EngineOptions engine;            // pack_path and compute_type are set per model and job
  std::string state_directory;     // where input files lie
  int num_tokenizer_threads = 1;
  int64_t max_ready_requests = 512;     // tokenized and waiting for a place in the block
  int64_t max_ready_tokens = 4 << 20;
  int64_t progress_interval_us = 60'000'000;  // generated ids become durable at the next sweep edge
  int64_t max_line_bytes = 16 << 20;
};

struct RunnerStatus {
  std::string loaded_model;
  std::string device;
  double tokens_per_second = 0;  // over the last sweeps
  int64_t held_requests = 0;
};

class Runner {
 public:
  Runner(RunnerOptions options, StoreActor& store, ModelCatalog& catalog, EngineFactory factory,
         const Clock& clock);
  // As Drain.
  ~Runner();

  void Start();
  // Ends the current sweep, publishes what finished, gives the rest back with its progress, and
  // stops the thread. Idempotent; waits.
  void Drain();
  RunnerStatus status() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace nightshift
