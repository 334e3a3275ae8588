// Whether the chosen plan is the best: jobs are run under the plan for them and under what a user
// might have fixed by hand instead, each with the rest planned around it. One line a setting:
// tokens a second of the plan beside those of the best alternative, medians of three rounds;
// `ratio` is their quotient, `spread` by how much the rounds of either differed: (largest - least)
// / median.
//
// Where anything lies follows from budgets alone. Rounds are interleaved; an alternative that takes
// half as long again as the plan in the first round is out of the race. About five minutes a
// setting, 25 for all.
//
// Usage: plan_choice [all | CASE] [HARDWARE.json]
// CASE runs the settings whose names contain it. The profile is that of `nightshift calibrate`
// unless given.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/engine.h"
#include "engine/model/pack.h"
#include "engine/policy/hardware_file.h"
#include "engine/policy/run_plan.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/engine_job.h"
#include "tests/bench/plan_jobs.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int kRounds = 3;
constexpr size_t kAlternatives = 6;
constexpr double kOutOfTheRace = 1.5;

struct Setting {
  std::string name;
  std::string shape;  // empty: the quickstart's pack
  WorkloadProfile workload;
  int64_t memory_bytes = 0;
  bool is_discrete = false;
};

std::vector<Setting> Settings() {
  return {
      {"135M in RAM, 64+32", "", Equal(64, 32, 144), kGiB},
      {"1b in RAM, 128+16", "1b", Equal(128, 16, 20), 6 * kGiB},
      {"1b half in RAM, 256+8", "1b", Equal(256, 8, 10), 1600 * kMiB},
      {"1b on disk, 32+1 to 8", "1b", Skewed(32, 8, 64), 640 * kMiB},
      {"1b discrete, links of 2 and 1 GB/s, 64+8", "1b", Equal(64, 8, 40), 4 * kGiB, true},
  };
}

EngineOptions BaseOf(const Setting& setting) {
  EngineOptions base;
  base.memory_budget_bytes = setting.memory_bytes;
  base.tiers.disk_budget_bytes = kGiB;
  base.tiers.spill_folder = std::filesystem::temp_directory_path().string();
  if (setting.is_discrete) {
    base.tiers.device_budget_bytes = kGiB;
    base.tiers.upload_bytes_per_s = 2e9;
    base.tiers.download_bytes_per_s = 1e9;
  }
  return base;
}

// What a user fixes; `options` are those of the plan, to differ from.
using Fix =
    std::function<void(const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed)>;

struct Override {
  std::string name;
  Fix fix;
};

void FixWeights(double share, EngineOptions& options, FixedOptions& fixed) {
  fixed.weights = true;
  options.tiers.weights = {.device = share, .host = 0.0};
}

std::vector<Override> Overrides(bool is_discrete) {
  std::vector<Override> overrides = {
      {"half the block",
       [](const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed) {
         fixed.max_block_requests = true;
         options.max_block_requests = std::max<int64_t>(1, plan.max_block_requests / 2);
       }},
      {"twice the block",
       [](const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed) {
         fixed.max_block_requests = true;
         options.max_block_requests = plan.max_block_requests * 2;
       }},
      {"batches of half the tokens",
       [](const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed) {
         fixed.max_batch_tokens = true;
         fixed.buffering = true;
         options.max_batch_tokens = std::max<int64_t>(1, plan.max_batch_tokens / 2);
         options.tiers.buffering = WeightBuffering::kTwoLayers;
       }},
  };
  const Override half_the_weights = {
      "half the weights",
      [](const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed) {
        FixWeights(plan.tiers.weights.of_device() / 2.0, options, fixed);
      }};
  const Override chunks = {
      "chunks of half a prompt",
      [](const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed) {
        fixed.prompt_chunk_tokens = true;
        options.prompt_chunk_tokens = std::max<int64_t>(1, plan.prompt_chunk_tokens / 2);
      }};
  const Override closed = {"a closed block",
                           [](const EngineOptions&, EngineOptions& options, FixedOptions& fixed) {
                             fixed.schedule = true;
                             options.tiers.schedule = ScheduleKind::kZigzag;
                           }};
  if (is_discrete) {
    overrides.push_back(
        {"keys on the other side",
         [](const EngineOptions& plan, EngineOptions& options, FixedOptions& fixed) {
           fixed.kv = true;
           const bool on_device = plan.tiers.kv.of_device() > 0.5;
           options.tiers.kv = {.device = on_device ? 0.0 : 1.0, .host = on_device ? 1.0 : 0.0};
         }});
    overrides.push_back({"keys on the host, attended there",
                         [](const EngineOptions&, EngineOptions& options, FixedOptions& fixed) {
                           fixed.kv = true;
                           fixed.host_attention = true;
                           options.tiers.kv = {.device = 0.0, .host = 1.0};
                           options.tiers.host_attention = true;
                         }});
    overrides.insert(overrides.end(), {half_the_weights, closed, chunks});
  } else {
    overrides.insert(overrides.end(), {half_the_weights, chunks, closed});
    overrides.push_back({"half the keys on disk",
                         [](const EngineOptions&, EngineOptions& options, FixedOptions& fixed) {
                           fixed.kv = true;
                           options.tiers.kv = {.device = 0.5, .host = 0.0};
                         }});
  }
  return overrides;
}

// For a job of so many requests.
bool AreSame(const EngineOptions& a, const EngineOptions& b, int64_t requests) {
  const auto same = [](const TierShares& one, const TierShares& other) {
    return std::abs(one.of_device() - other.of_device()) < 0.01 &&
           std::abs(one.of_host() - other.of_host()) < 0.01;
  };
  const auto block = [&](const EngineOptions& options) {
    return std::min(options.max_block_requests, requests);
  };
  return block(a) == block(b) && a.max_sweep_tokens == b.max_sweep_tokens &&
         a.max_batch_tokens == b.max_batch_tokens &&
         a.prompt_chunk_tokens == b.prompt_chunk_tokens && a.tiers.schedule == b.tiers.schedule &&
         a.tiers.buffering == b.tiers.buffering &&
         a.tiers.host_attention == b.tiers.host_attention &&
         same(a.tiers.weights, b.tiers.weights) && same(a.tiers.kv, b.tiers.kv) &&
         same(a.tiers.activations, b.tiers.activations);
}

// One way to run the job.
struct Way {
  std::string name;
  EngineOptions options;
  double predicted = 0.0;        // tokens a second
  std::vector<double> observed;  // the same, by round
};

// The plan first, then up to six that differ from it and from each other: the options that an
// engine has without a plan, and overrides.
absl::StatusOr<std::vector<Way>> WaysOf(const Setting& setting, const HardwareProfile& machine) {
  EngineOptions base = BaseOf(setting);
  ASSIGN_OR_RETURN(base.pack_path, PackOfShape(setting.shape));
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(base.pack_path));
  RunRequest request = {.manifest = pack->manifest(),
                        .name = setting.name,
                        .base = base,
                        .fixed = {},
                        .hardware = machine,
                        .workload = setting.workload};
  for (const WorkloadClass& one : setting.workload.classes) {
    request.longest_request_tokens =
        std::max(request.longest_request_tokens, one.prompt_tokens + one.output_tokens);
  }
  ASSIGN_OR_RETURN(const RunPlan chosen, PlanRun(request));
  std::vector<Way> ways = {{"the plan", chosen.options, chosen.predicted.tokens_per_s, {}}};
  const auto add = [&](const std::string& name, const EngineOptions& options, double predicted) {
    const bool is_known = std::any_of(ways.begin(), ways.end(), [&](const Way& way) {
      return AreSame(way.options, options, setting.workload.requests());
    });
    if (!is_known && ways.size() <= kAlternatives) {
      ways.push_back({name, options, predicted, {}});
    }
  };
  if (const auto run = PredictRun(request, base); run.ok()) {
    add("without a plan", base, run->tokens_per_s);
  }
  for (const Override& one : Overrides(setting.is_discrete)) {
    request.base = base;
    request.fixed = {};
    one.fix(chosen.options, request.base, request.fixed);
    const absl::StatusOr<RunPlan> plan = PlanRun(request);
    if (plan.ok()) {
      add(one.name, plan->options, plan->predicted.tokens_per_s);
    } else {
      std::fprintf(stderr, "  %s: not run: %s\n", one.name.c_str(),
                   plan.status().ToString().c_str());
    }
  }
  return ways;
}

absl::Status RunOnce(const WorkloadProfile& workload, Way& way) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(way.options));
  ASSIGN_OR_RETURN(const JobTime time,
                   RunJob(*engine, RequestsOf(workload, engine->info().vocabulary)));
  way.observed.push_back(static_cast<double>(time.tokens) / time.seconds);
  absl::FPrintF(stderr, "  %s: %.4g tokens/s in %.1f s\n", way.name, way.observed.back(),
                time.seconds);
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Spread(const std::vector<double>& values) {
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  return (*largest - *least) / Median(values);
}

void Describe(const Way& way) {
  const EngineOptions& options = way.options;
  const auto shares = [](const TierShares& of) {
    return of.is_given() ? absl::StrFormat("%.2f/%.2f", of.of_device(), of.of_host())
                         : std::string("as it fits");
  };
  std::string observed;
  for (const double rate : way.observed) {
    absl::StrAppendFormat(&observed, " %.4g", rate);
  }
  absl::FPrintF(stderr,
                "  %-32s predicted %.4g, observed%s tokens/s (block %d, sweep %d, batch %d, chunk "
                "%d, weights %s, keys %s, rows %s, %s%s)\n",
                way.name, way.predicted, observed, options.max_block_requests,
                options.max_sweep_tokens, options.max_batch_tokens, options.prompt_chunk_tokens,
                shares(options.tiers.weights), shares(options.tiers.kv),
                shares(options.tiers.activations), ScheduleKindName(options.tiers.schedule),
                options.tiers.host_attention ? ", attention by the host" : "");
}

absl::Status Run(const Setting& setting, const HardwareProfile& machine) {
  std::fprintf(stderr, "%s\n", setting.name.c_str());
  ASSIGN_OR_RETURN(std::vector<Way> ways, WaysOf(setting, machine));
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : ways) {
      const bool is_out = round > 0 && way.observed[0] * kOutOfTheRace < ways[0].observed[0];
      if (!is_out) {
        RETURN_IF_ERROR(RunOnce(setting.workload, way));
      }
    }
  }
  const Way* best = nullptr;
  for (const Way& way : ways) {
    Describe(way);
    const bool is_better = best == nullptr || Median(way.observed) > Median(best->observed);
    best = &way != &ways.front() && is_better ? &way : best;
  }
  if (best == nullptr) {
    return absl::InternalError(absl::StrCat(setting.name, ": there is no alternative to the plan"));
  }
  const double chosen = Median(ways[0].observed);
  absl::PrintF(R"({"bench": "plan_choice", "case": "%s", "value": %.4g, "unit": "tokens/s", )"
               R"("reference": "best alternative: %s", "reference_value": %.4g, "ratio": %.3f, )"
               R"("spread": %.3f})"
               "\n",
               setting.name, chosen, best->name, Median(best->observed),
               chosen / Median(best->observed),
               std::max(Spread(ways[0].observed), Spread(best->observed)));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status RunAll(const std::string& which, const std::string& hardware_path) {
  ASSIGN_OR_RETURN(const HardwareProfile machine, LoadHardwareProfile(hardware_path));
  for (const Setting& setting : Settings()) {
    if (which == "all" || absl::StrContains(setting.name, which)) {
      RETURN_IF_ERROR(Run(setting, machine));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  return nightshift::RunBenchMain(argc <= 3, "plan_choice [all | CASE] [HARDWARE.json]", [&] {
    return nightshift::RunAll(argc > 1 ? argv[1] : "all",
                              argc > 2 ? argv[2] : nightshift::DefaultHardwarePath());
  });
}
