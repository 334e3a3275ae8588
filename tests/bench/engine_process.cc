// What it costs that the engine is another process: calls of an engine that does nothing, and the
// sweeps of a real one with one request, both inside and as a child.
//
// Usage: engine_process [PACK]
// PACK is the quickstart's unless given.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

#include "engine/engine.h"
#include "engine/process/engine_process.h"
#include "engine/process/serve_engine.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/engine_job.h"

namespace nightshift {
namespace {

constexpr char kIdlePack[] = "idle";
constexpr int kTurns = 201;

// Takes everything and gives each request a token with no time spent on it, and as many steps as a
// model of 32 layers that streams its weights.
class IdleEngine : public Engine {
 public:
  const EngineInfo& info() const override { return info_; }
  EngineUsage Usage() const override { return {}; }
  std::vector<AdmitOutcome> Admit(std::vector<EngineRequest> requests) override {
    std::vector<AdmitOutcome> outcomes;
    for (const EngineRequest& request : requests) {
      outcomes.push_back({.id = request.id, .status = absl::OkStatus()});
      ids_.push_back(request.id);
    }
    return outcomes;
  }
  absl::StatusOr<SweepResult> Sweep() override {
    SweepResult result;
    result.steps.resize(32 * 9);
    for (const uint64_t id : ids_) {
      SweepRecord& record = result.records.emplace_back();
      record.id = id;
      record.token.emplace();
    }
    return result;
  }
  std::vector<EngineRequest> Suspend(const std::vector<uint64_t>&) override { return {}; }
  void Retire(const std::vector<uint64_t>&) override { ids_.clear(); }
  absl::StatusOr<std::vector<EngineRequest>> ApplyPlan(const EngineOptions&) override {
    return std::vector<EngineRequest>();
  }
  int64_t num_held() const override { return static_cast<int64_t>(ids_.size()); }

 private:
  EngineInfo info_;
  std::vector<uint64_t> ids_;
};

absl::StatusOr<std::unique_ptr<Engine>> CreateInside(const EngineOptions& options) {
  if (options.pack_path == kIdlePack) {
    return std::make_unique<IdleEngine>();
  }
  return Engine::Create(options);
}

struct Medians {
  double child_us = 0;
  double inside_us = 0;
};

double MedianOf(std::vector<int64_t>& times) {
  std::nth_element(times.begin(), times.begin() + kTurns / 2, times.end());
  return static_cast<double>(times[kTurns / 2]);
}

// Of a call to each engine in turns, so that both see the same machine.
Medians MeasureInTurns(Engine& child, Engine& inside, const std::function<void(Engine&)>& call) {
  const RealClock clock;
  std::vector<int64_t> times[2];
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const int which : {turn % 2, 1 - turn % 2}) {
      const int64_t start_us = clock.MonotonicMicros();
      call(which == 0 ? child : inside);
      times[which].push_back(clock.MonotonicMicros() - start_us);
    }
  }
  return {.child_us = MedianOf(times[0]), .inside_us = MedianOf(times[1])};
}

std::vector<EngineRequest> Requests(int64_t count, int64_t prompt_tokens) {
  std::vector<EngineRequest> requests(static_cast<size_t>(count));
  uint64_t id = 0;
  for (EngineRequest& request : requests) {
    request.id = ++id;
    request.prompt.assign(static_cast<size_t>(prompt_tokens), 100);
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    request.sampling.max_output_tokens = 2 * kTurns;
  }
  return requests;
}

void Print(const std::string& what, const Medians& medians) {
  absl::PrintF(R"({"bench": "engine_process", "case": "%s", "value": %.0f, "unit": "us", )"
               R"("reference": "inside", "reference_value": %.0f})"
               "\n",
               what, medians.child_us, medians.inside_us);
}

void SweepOnce(Engine& engine) {
  CHECK(engine.Sweep().ok());
}

absl::Status MeasureCalls() {
  EngineOptions options;
  options.pack_path = kIdlePack;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> child, EngineProcess::Create(options));
  IdleEngine inside;
  for (const int64_t count : {1, 64, 256}) {
    const auto admit_anew = [requests = Requests(count, 2048)](Engine& engine) {
      engine.Retire({1});
      engine.Admit(requests);
    };
    Print(absl::StrFormat("retire all, admit %d requests of 2048 tokens", count),
          MeasureInTurns(*child, inside, admit_anew));
    Print(absl::StrFormat("sweep of %d requests", count),
          MeasureInTurns(*child, inside, SweepOnce));
  }
  return absl::OkStatus();
}

absl::Status MeasureModel(const std::string& pack) {
  EngineOptions options;
  options.pack_path = pack;
  options.memory_budget_bytes = int64_t{1} << 30;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> child, EngineProcess::Create(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> inside, Engine::Create(options));
  for (Engine* engine : {child.get(), inside.get()}) {
    RETURN_IF_ERROR(engine->Admit(Requests(1, 32))[0].status);
    RETURN_IF_ERROR(engine->Sweep().status());
  }
  Print("sweep of one decoding request of " + pack, MeasureInTurns(*child, *inside, SweepOnce));
  return absl::OkStatus();
}

int Run(int argc, char** argv) {
  absl::Status status = MeasureCalls();
  if (status.ok()) {
    status = MeasureModel(argc > 1 ? argv[1] : QuickstartPack());
  }
  if (!status.ok()) {
    absl::FPrintF(stderr, "engine_process: %s\n", std::string(status.message()));
  }
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  return nightshift::IsEngineProcess(argc, argv)
             ? nightshift::RunEngineProcess(nightshift::CreateInside)
             : nightshift::Run(argc, argv);
}
