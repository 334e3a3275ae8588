// BenchText and BenchJson of bench.h.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "server/tools/bench.h"

namespace nightshift {
namespace {

// Members keep the order in which a person reads them.
using Json = nlohmann::ordered_json;

double Mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

double PerSecond(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

double Percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

double Seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

int64_t SampledTokens(const BenchReport& report) {
  int64_t tokens = 0;
  for (const BenchSweep& sweep : report.sweeps) {
    tokens += sweep.output_tokens;
  }
  return tokens;
}

int64_t LargestBlock(const BenchReport& report) {
  int64_t held = 0;
  for (const BenchSweep& sweep : report.sweeps) {
    held = std::max(held, sweep.held);
  }
  return held;
}

// Output tokens of the whole job over its projected time.
double ProjectedRate(const BenchOptions& options, const BenchReport& report) {
  return PerSecond(static_cast<double>(options.requests * options.output_tokens),
                   *report.projected_s);
}

Json RateToJson(const BenchRate& rate) {
  return {
      {"tokens", rate.tokens}, {"seconds", rate.seconds}, {"tokens_per_s", rate.tokens_per_s()}};
}

Json SweepToJson(const BenchSweep& sweep) {
  return {{"seconds", sweep.seconds},
          {"held", sweep.held},
          {"prompt_tokens", sweep.prompt_tokens},
          {"output_tokens", sweep.output_tokens},
          {"first_tokens", sweep.first_tokens},
          {"disk_read_bytes", sweep.disk_read_bytes},
          {"disk_busy_s", sweep.disk_busy_s},
          {"disk_wait_s", sweep.disk_wait_s}};
}

Json ProjectionToJson(const BenchOptions& options, const BenchReport& report) {
  if (!report.projected_s) {
    return nullptr;
  }
  return {{"seconds", *report.projected_s},
          {"generated_tokens_per_s", ProjectedRate(options, report)}};
}

void AppendLine(std::string& text, const char* name, const std::string& value) {
  absl::StrAppendFormat(&text, "%-10s %s\n", name, value);
}

std::string RateText(const BenchRate& rate) {
  return absl::StrFormat("%d tokens in %.2f s, %.1f tokens/s", rate.tokens, rate.seconds,
                         rate.tokens_per_s());
}

std::string CutText(const BenchOptions& options, const BenchReport& report) {
  std::string text = absl::StrFormat("after %d sweeps", report.sweeps.size());
  if (options.start_context > 0) {
    absl::StrAppend(&text, ", begun with ", options.start_context,
                    " made-up tokens of context in each request");
  }
  return text;
}

std::string ProjectionText(const BenchOptions& options, const BenchReport& report) {
  if (!report.projected_s) {
    return "projected: nothing, prefill or decode was not seen";
  }
  return absl::StrFormat("projected: the whole job in %.1f s, %.2f generated tokens/s",
                         *report.projected_s, ProjectedRate(options, report));
}

std::string DiskText(const BenchReport& report) {
  const EngineUsage& usage = report.usage;
  if (usage.disk_read_bytes == 0) {
    return "nothing read";
  }
  return absl::StrFormat(
      "%.0f MiB read, %.0f MiB/s while busy; busy %.0f %% of the time, computing waited for it "
      "%.0f %%",
      Mebibytes(usage.disk_read_bytes),
      PerSecond(Mebibytes(usage.disk_read_bytes), Seconds(usage.disk_busy_us)),
      Percent(Seconds(usage.disk_busy_us), report.seconds),
      Percent(Seconds(usage.disk_wait_us), report.seconds));
}

// Of lanes that did something.
std::string LanesText(const SweepTimes& times) {
  std::vector<std::string> lanes;
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneTimes& lane = times.lanes[i];
    if (lane.busy_us > 0) {
      lanes.push_back(absl::StrFormat("%s %.0f %% (%.0f MiB)", LaneName(static_cast<LaneId>(i)),
                                      Percent(Seconds(lane.busy_us), Seconds(times.wall_us)),
                                      Mebibytes(lane.bytes)));
    }
  }
  return lanes.empty() ? "none was busy"
                       : absl::StrCat("busy: ", absl::StrJoin(lanes, ", "),
                                      "; bottleneck: ", Bottleneck(times));
}

Json LanesToJson(const SweepTimes& times) {
  Json json = Json::object();
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneTimes& lane = times.lanes[i];
    json[LaneName(static_cast<LaneId>(i))] = {{"busy_seconds", Seconds(lane.busy_us)},
                                              {"bytes", lane.bytes},
                                              {"waited_seconds", Seconds(lane.waited_us)}};
  }
  return json;
}

std::string MemoryText(const BenchOptions& options, const BenchReport& report) {
  std::string text = absl::StrFormat(
      "%.0f of %.0f MiB of the budget taken; KV pages at most %d of %d",
      Mebibytes(report.usage.memory_bytes), Mebibytes(options.engine.memory_budget_bytes),
      report.peak_kv_pages, report.engine.kv_budget_pages);
  if (report.peak_process_bytes > 0) {
    absl::StrAppendFormat(&text, "; process at most %.0f MiB",
                          Mebibytes(report.peak_process_bytes));
  }
  return text;
}

}  // namespace

std::string BenchText(const BenchOptions& options, const BenchReport& report) {
  const EngineInfo& engine = report.engine;
  const int64_t sampled = SampledTokens(report);
  std::string text;
  AppendLine(text, "model", options.engine.pack_path);
  AppendLine(text, "device", absl::StrCat(engine.device, "; ", engine.numeric_mode));
  AppendLine(text, "job",
             absl::StrFormat("%d requests of %d prompt and %d output tokens, at most %d held",
                             options.requests, options.prompt_tokens, options.output_tokens,
                             LargestBlock(report)));
  if (report.is_cut) {
    AppendLine(text, "cut", CutText(options, report));
  }
  AppendLine(
      text, "placement",
      absl::StrFormat("weights: %.0f MiB in memory, %.0f MiB a sweep from disk; KV %.0f MiB",
                      Mebibytes(engine.weight_bytes), Mebibytes(engine.streamed_weight_bytes),
                      Mebibytes(engine.kv_budget_bytes)));
  AppendLine(text, "load", absl::StrFormat("%.2f s", report.load_s));
  AppendLine(text, "prefill", RateText(report.prefill));
  AppendLine(text, "decode", RateText(report.decode));
  AppendLine(text, "total",
             absl::StrFormat(
                 "%d sweeps, latency of the block %.2f s, %.1f tokens/s, %.2f generated "
                 "tokens/s, %d requests finished",
                 report.sweeps.size(), report.seconds,
                 PerSecond(static_cast<double>(report.prefill.tokens + sampled), report.seconds),
                 PerSecond(static_cast<double>(sampled), report.seconds), report.finished));
  if (report.evictions > 0) {
    AppendLine(text, "evictions", absl::StrCat(report.evictions));
  }
  AppendLine(text, "disk", DiskText(report));
  AppendLine(text, "lanes", LanesText(report.usage.times));
  AppendLine(text, "memory", MemoryText(options, report));
  if (report.is_cut) {
    AppendLine(text, "whole job", ProjectionText(options, report));
  }
  return text;
}

std::string BenchJson(const BenchOptions& options, const BenchReport& report) {
  const EngineInfo& engine = report.engine;
  const int64_t sampled = SampledTokens(report);
  Json json = {{"model", options.engine.pack_path},
               {"device", engine.device},
               {"numeric_mode", engine.numeric_mode},
               {"requests", options.requests},
               {"prompt_tokens", options.prompt_tokens},
               {"output_tokens", options.output_tokens},
               {"start_context", options.start_context},
               {"cut", report.is_cut},
               {"largest_block", LargestBlock(report)},
               {"load_seconds", report.load_s},
               {"seconds", report.seconds},
               {"prefill", RateToJson(report.prefill)},
               {"decode", RateToJson(report.decode)},
               {"tokens_per_s",
                PerSecond(static_cast<double>(report.prefill.tokens + sampled), report.seconds)},
               {"generated_tokens_per_s", PerSecond(static_cast<double>(sampled), report.seconds)},
               {"finished", report.finished},
               {"evictions", report.evictions},
               {"projected", ProjectionToJson(options, report)},
               {"disk",
                {{"read_bytes", report.usage.disk_read_bytes},
                 {"busy_seconds", Seconds(report.usage.disk_busy_us)},
                 {"wait_seconds", Seconds(report.usage.disk_wait_us)}}},
               {"lanes", LanesToJson(report.usage.times)},
               {"bottleneck", Bottleneck(report.usage.times)},
               {"memory",
                {{"budget_bytes", options.engine.memory_budget_bytes},
                 {"taken_bytes", report.usage.memory_bytes},
                 {"device_taken_bytes", report.usage.device_memory_bytes},
                 {"weight_bytes", engine.weight_bytes},
                 {"streamed_weight_bytes", engine.streamed_weight_bytes},
                 {"kv_bytes", engine.kv_budget_bytes},
                 {"kv_pages", engine.kv_budget_pages},
                 {"peak_kv_pages", report.peak_kv_pages},
                 {"peak_process_bytes", report.peak_process_bytes}}},
               {"sweeps", Json::array()}};
  for (const BenchSweep& sweep : report.sweeps) {
    json["sweeps"].push_back(SweepToJson(sweep));
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace nightshift
