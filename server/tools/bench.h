// `nightshift bench MODEL`: the engine alone on a job of equal synthetic requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "kernels/base/clock.h"
#include "server/device_choice.h"

namespace nightshift {

struct BenchOptions {
  EngineOptions engine;         // pack_path: MODEL
  DeviceChoice device;          // fixes engine.tiers.gpu before the run
  int64_t requests = 256;       // of the job
  int64_t prompt_tokens = 512;  // of each
  int64_t output_tokens = 32;   // of each; 0: the prompts are scored
  // Cuts the run after so many sweeps; 0: it goes to its end.
  int64_t sweeps = 0;
  // The first so many tokens of each request (its prompt, then output) count as computed, over
  // made-up keys and values; 0: it begins with its prompt.
  int64_t start_context = 0;
  uint64_t seed = 1;  // of the prompts

  // All but `engine`, which Engine::Create checks. Errors: INVALID_ARGUMENT naming option and value.
  absl::Status Validate() const;
};

// One sweep, as the engine reports it.
struct BenchSweep {
  double seconds = 0;
  int64_t held = 0;           // requests of the block
  int64_t prompt_tokens = 0;  // computed
  int64_t output_tokens = 0;  // sampled
  int64_t first_tokens = 0;   // of those, the first of their requests: they had no row of their own
  int64_t disk_read_bytes = 0;
  double disk_busy_s = 0;
  double disk_wait_s = 0;
};

// A part of a job and its time.
struct BenchRate {
  int64_t tokens = 0;
  double seconds = 0;

  double tokens_per_s() const;  // 0 without tokens
};

struct BenchReport {
  EngineInfo engine;
  double load_s = 0;  // from Create to the first sweep
  std::vector<BenchSweep> sweeps;
  int64_t finished = 0;  // requests
  int64_t evictions = 0;
  // Sweeps' times shared out between rows of prompts and rows of outputs by their numbers; where a
  // sweep has one kind only, as at the beginning and end of a job, that is exact. The first token
  // of a request comes out of its prompt's last row.
  BenchRate prefill;
  BenchRate decode;
  double seconds = 0;  // of all sweeps and admissions: the latency of the block
  bool is_cut = false;
  // Seconds of the whole job at these rates; nothing if not cut, or if a rate that the job needs
  // was not seen.
  std::optional<double> projected_s;
  EngineUsage usage;             // over all sweeps; memory at the end
  std::vector<StepTimes> steps;  // the last, at most kMaxTraceSteps
  int64_t peak_kv_pages = 0;
  int64_t peak_process_bytes = 0;  // resident memory of the process; 0 if the system does not tell
};

// Runs the job on an engine that was created with options.engine and holds nothing; `load_s` is
// passed on. Errors: as Engine's calls; RESOURCE_EXHAUSTED if not even one request has room.
// Threads: one.
absl::StatusOr<BenchReport> RunBench(const BenchOptions& options, Engine& engine,
                                     const Clock& clock, double load_s);

// For people, of several lines; or one JSON object in one line.
std::string BenchText(const BenchOptions& options, const BenchReport& report);
std::string BenchJson(const BenchOptions& options, const BenchReport& report);

}  // namespace nightshift
