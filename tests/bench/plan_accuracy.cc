// Whether plans come true: jobs are run on this machine, and beside that simulated on its
// calibrated profile. Two lines a setting: throughput and peak memory; `ratio` is 1 - |predicted -
// observed| / observed.
//
// Where weights lie follows from budgets alone. About 20 s a setting; `long` adds the 7B shape read
// from disk, which takes a pack of 14.8 GB and some minutes.
//
// Usage: plan_accuracy [short | long | CASE] [HARDWARE.json]
// CASE runs the settings whose names contain it. The profile is that of `nightshift calibrate`
// unless given.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "engine/engine.h"
#include "engine/model/pack.h"
#include "engine/policy/discrete_form.h"
#include "engine/policy/hardware_file.h"
#include "engine/policy/sweep_simulation.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/engine_job.h"
#include "tests/bench/plan_jobs.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

struct Setting {
  std::string name;
  std::string shape;  // empty: the quickstart's pack
  WorkloadProfile workload;
  std::function<void(EngineOptions&)> adjust;
  bool is_long = false;
};

std::vector<Setting> Settings() {
  const auto small_sweeps = [](EngineOptions& options) {
    options.max_block_requests = 32;
    options.max_sweep_tokens = 512;
  };
  return {
      {"135M in RAM, 32+64", "", Equal(32, 64, 256),
       [](EngineOptions& options) { options.memory_budget_bytes = 2 * kGiB; }},
      {"135M half in RAM, 512+16", "", Equal(512, 16, 48),
       [](EngineOptions& options) {
         options.memory_budget_bytes = kGiB;
         options.weight_budget_bytes = 135 * kMiB;
       }},
      {"135M on disk, 64+16 to 128", "", Skewed(64, 128, 128),
       [](EngineOptions& options) {
         options.memory_budget_bytes = kGiB;
         options.weight_budget_bytes = 0;
       }},
      {"1b in RAM, 128+16", "1b", Equal(128, 16, 32),
       [=](EngineOptions& options) {
         small_sweeps(options);
         options.memory_budget_bytes = 6 * kGiB;
       }},
      {"1b half in RAM, 32+32", "1b", Equal(32, 32, 64),
       [=](EngineOptions& options) {
         small_sweeps(options);
         options.memory_budget_bytes = 3 * kGiB;
         options.weight_budget_bytes = 1100 * kMiB;
       }},
      {"1b on disk, 16+4 to 32", "1b", Skewed(16, 32, 80),
       [=](EngineOptions& options) {
         small_sweeps(options);
         options.memory_budget_bytes = kGiB;
         options.weight_budget_bytes = 0;
       }},
      {"1b on disk, 512+4", "1b", Equal(512, 4, 12),
       [](EngineOptions& options) {
         options.max_block_requests = 8;
         options.max_sweep_tokens = 1024;
         options.memory_budget_bytes = 2 * kGiB;
         options.weight_budget_bytes = 0;
       }},
      {"1b discrete, links of 2 and 1 GB/s, 64+16", "1b", Equal(64, 16, 64),
       [=](EngineOptions& options) {
         small_sweeps(options);
         options.memory_budget_bytes = 4 * kGiB;
         options.tiers.device_budget_bytes = kGiB;
         options.tiers.upload_bytes_per_s = 2e9;
         options.tiers.download_bytes_per_s = 1e9;
         options.tiers.buffering = WeightBuffering::kTwoLayers;
       }},
      {"7b on disk, 64+16", "7b", Equal(64, 16, 64),
       [](EngineOptions& options) {
         options.max_block_requests = 64;
         options.max_sweep_tokens = 1024;
         options.memory_budget_bytes = 4 * kGiB;
         options.weight_budget_bytes = 0;
       },
       /*is_long=*/true},
  };
}

void Print(const Setting& setting, const char* what, const char* unit, double predicted,
           double observed) {
  absl::PrintF(R"({"bench": "plan_accuracy", "case": "%s, %s", "value": %.4g, "unit": "%s", )"
               R"("reference": "observed", "reference_value": %.4g, "ratio": %.3f})"
               "\n",
               setting.name, what, predicted, unit, observed,
               1.0 - std::abs(predicted - observed) / observed);
  std::fflush(stdout);
}

void PrintLanes(const SimulatedRun& run, const EngineUsage& usage) {
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneId lane = static_cast<LaneId>(i);
    const double observed = static_cast<double>(usage.times.of(lane).busy_us) * 1e-6;
    if (run.lane_seconds[i] > 0.0 || observed > 0.0) {
      std::fprintf(stderr, "  %-14s predicted %8.2f s, observed %8.2f s\n", LaneName(lane),
                   run.lane_seconds[i] * run.seconds / run.simulated_seconds, observed);
    }
  }
}

absl::Status Run(const Setting& setting, const HardwareProfile& machine) {
  EngineOptions options;
  ASSIGN_OR_RETURN(options.pack_path, PackOfShape(setting.shape));
  setting.adjust(options);
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(options.pack_path));
  const HardwareProfile hardware =
      options.tiers.unified_memory() ? machine : DiscreteForm(machine, options.tiers);
  ASSIGN_OR_RETURN(const SimulatedRun run, SimulateRun({.manifest = pack->manifest(),
                                                        .name = setting.name,
                                                        .options = options,
                                                        .hardware = hardware},
                                                       setting.workload));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  ASSIGN_OR_RETURN(const JobTime time,
                   RunJob(*engine, RequestsOf(setting.workload, engine->info().vocabulary)));
  const EngineUsage usage = engine->Usage();
  std::fprintf(stderr, "%s: predicted %.1f s, observed %.1f s\n", setting.name.c_str(), run.seconds,
               time.seconds);
  PrintLanes(run, usage);
  Print(setting, "throughput", "tokens/s", run.tokens_per_s,
        static_cast<double>(time.tokens) / time.seconds);
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / kMiB; };
  Print(setting, "peak memory", "MiB", mib(run.memory.host_bytes + run.memory.device_bytes),
        mib(usage.memory_bytes + usage.device_memory_bytes));
  return absl::OkStatus();
}

absl::Status RunAll(const std::string& which, const std::string& hardware_path) {
  ASSIGN_OR_RETURN(const HardwareProfile machine, LoadHardwareProfile(hardware_path));
  for (const Setting& setting : Settings()) {
    const bool is_wanted = which == "long" || (which == "short" && !setting.is_long) ||
                           absl::StrContains(setting.name, which);
    if (is_wanted) {
      RETURN_IF_ERROR(Run(setting, machine));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  return nightshift::RunBenchMain(
      argc <= 3, "plan_accuracy [short | long | CASE] [HARDWARE.json]", [&] {
        return nightshift::RunAll(argc > 1 ? argv[1] : "short",
                                  argc > 2 ? argv[2] : nightshift::DefaultHardwarePath());
      });
}
