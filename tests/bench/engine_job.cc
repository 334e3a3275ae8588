#include "tests/bench/engine_job.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Admits as much as there is room for; what has none waits in `waiting`.
absl::Status AdmitWaiting(Engine& engine, std::vector<EngineRequest>& waiting) {
  const std::vector<AdmitOutcome> outcomes = engine.Admit(waiting);
  std::vector<EngineRequest> refused;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (absl::IsResourceExhausted(outcomes[i].status)) {
      refused.push_back(std::move(waiting[i]));
    } else {
      RETURN_IF_ERROR(outcomes[i].status);
    }
  }
  waiting = std::move(refused);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobTime> RunJob(Engine& engine, std::vector<EngineRequest> requests) {
  const RealClock clock;
  const int64_t start_us = clock.MonotonicMicros();
  JobTime time;
  while (!requests.empty() || engine.num_held() > 0) {
    RETURN_IF_ERROR(AdmitWaiting(engine, requests));
    ASSIGN_OR_RETURN(SweepResult result, engine.Sweep());
    time.tokens += result.prompt_tokens + result.output_tokens;
    for (EngineRequest& evicted : result.evicted) {
      requests.push_back(std::move(evicted));
    }
  }
  time.seconds = static_cast<double>(clock.MonotonicMicros() - start_us) * 1e-6;
  return time;
}

std::string QuickstartPack() {
  const char* cache = std::getenv("NIGHTSHIFT_CACHE");
  const char* home = std::getenv("HOME");
  return absl::StrCat(
      cache != nullptr ? cache : absl::StrCat(home != nullptr ? home : "", "/.cache/nightshift"),
      "/models/smollm2-135m-instruct");
}

int RunBenchMain(bool has_right_arguments, const char* usage,
                 const std::function<absl::Status()>& bench) {
  if (!has_right_arguments) {
    std::fprintf(stderr, "usage: %s\n", usage);
    return 2;
  }
  const absl::Status status = bench();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace nightshift
