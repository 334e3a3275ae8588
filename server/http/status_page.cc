#include "server/http/status_page.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "kernels/base/printable_text.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"
#include "server/security/caller.h"

namespace nightshift {
namespace {

constexpr size_t kMaxJobs = 100;
constexpr int64_t kMaxTextBytes = 300;

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="10">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>nightshiftd</title>
<style>
body { font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; margin: 2em auto; max-width: 72em;
  padding: 0 1.5em; color: #1c2430; background: #fff; }
h1 { font-size: 1.5em; margin: 0 0 .2em; } h2 { font-size: 1.1em; margin: 2em 0 .5em; }
p { margin: .3em 0; } .quiet { color: #5b6676; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35em 1em .35em 0;
  border-bottom: 1px solid #e3e7ec; overflow-wrap: anywhere; }
th { font-weight: 600; color: #5b6676; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { width: 11em; white-space: nowrap; } td.short { white-space: nowrap; }
.bar { display: inline-block; width: 12em; max-width: 40vw; height: .8em; background: #e3e7ec;
  border-radius: .2em; overflow: hidden; margin-right: .6em; vertical-align: baseline; }
.bar span { display: block; height: 100%; background: #2f6fb5; }
.good { color: #1a7338; font-weight: 600; } .bad { color: #b3261e; font-weight: 600; }
</style></head><body>
)";

// Short enough for a cell.
std::string Text(absl::string_view text) {
  const bool fits = static_cast<int64_t>(text.size()) <= kMaxTextBytes;
  return absl::StrCat(EscapeHtml(CleanText(text, kMaxTextBytes)), fits ? "" : "...");
}

std::string Bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, value, kUnits[unit]);
}

std::string Grouped(int64_t number) {
  std::string digits = absl::StrCat(number);
  for (size_t at = digits.size(); at > 3 + (number < 0 ? 1U : 0U);) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string Duration(int64_t seconds) {
  if (seconds < 60) {
    return absl::StrCat(std::max<int64_t>(seconds, 0), " s");
  }
  if (seconds < 3600) {
    return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  }
  if (seconds < 48 * 3600) {
    return absl::StrCat(seconds / 3600, " h ", seconds % 3600 / 60, " min");
  }
  return absl::StrCat(seconds / 86400, " d ", seconds % 86400 / 3600, " h");
}

std::string Time(int64_t wall_us) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixMicros(wall_us),
                          absl::UTCTimeZone());
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f %%", 100 * share);
}

std::string Bar(double share) {
  return absl::StrFormat("<span class=\"bar\"><span style=\"width:%.1f%%\"></span></span>%s",
                         100 * std::clamp(share, 0.0, 1.0), Percent(share));
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// A row of a table of two columns; `value` is HTML.
void AddRow(std::string& page, absl::string_view name, absl::string_view value) {
  absl::StrAppend(&page, "<tr><td class=\"name\">", name, "</td><td>", value, "</td></tr>\n");
}

void AddTop(const DaemonStatus& status, std::string& page) {
  const int64_t now_s = status.now_us / 1'000'000;
  absl::StrAppend(&page, "<h1>nightshiftd ", Text(status.info.version()), "</h1>\n<p>",
                  status.drained ? "<span class=\"bad\">drained: nothing is accepted, nothing runs"
                                   "</span>"
                  : IsReady(status.checks) ? "<span class=\"good\">ready</span>"
                                           : "<span class=\"bad\">not ready</span>",
                  " <span class=\"quiet\">at ", Time(status.now_us), ", up for ",
                  Duration(now_s - status.info.start_time().seconds()), "</span></p>\n");
  for (const ReadinessCheck& check : status.checks) {
    if (!check.status.ok()) {
      absl::StrAppend(&page, "<p><span class=\"bad\">", Text(check.name), "</span> ",
                      Text(check.status.message()), "</p>\n");
    }
  }
  if (status.tls.has_value() && !status.tls->problem.empty()) {
    absl::StrAppend(&page, "<p><span class=\"bad\">TLS</span> the certificate from before is served, until ",
                    Time(status.tls->expire_time_us), ": ", Text(status.tls->problem), "</p>\n");
  }
}

void AddEngine(const DaemonStatus& status, std::string& page) {
  const RunnerStatus& runner = status.runner;
  absl::StrAppend(&page, "<h2>Engine</h2>\n<table>\n");
  const std::string budget = Bytes(status.info.memory_budget_bytes());
  if (runner.loaded_model.empty()) {
    AddRow(page, "model", "none is loaded");
    AddRow(page, "memory", absl::StrCat("none is reserved, ", budget, " at most"));
  } else {
    AddRow(page, "model", absl::StrCat(Text(runner.loaded_model), " on ", Text(runner.device)));
    AddRow(page, "rate",
           runner.held_requests == 0 ? "idle"
                                     : absl::StrFormat("%.1f tokens/s", runner.tokens_per_second));
    AddRow(page, "block",
           absl::StrCat(runner.held_requests, " of ", runner.max_block_requests, " requests"));
    AddRow(page, "keys and values", Bar(runner.kv_used_ratio));
    // Set aside when the model was loaded, whether it is in use or not: no bar that looks full.
    AddRow(page, "memory",
           absl::StrCat(Bytes(runner.engine_memory_bytes), " of ", budget,
                        " reserved, for weights, keys and values and what is computed"));
  }
  const PolicyState* policy = runner.policy.get();
  if (policy != nullptr && !policy->model.empty()) {
    AddRow(page, "plan",
           policy->plan.has_value() ? Text(ConstraintOf(*policy->plan))
                                    : absl::StrCat("none: ", Text(policy->reason)));
    AddRow(page, "weights",
           absl::StrCat(Bytes(static_cast<int64_t>(policy->weight_bytes[0])), " on the device, ",
                        Bytes(static_cast<int64_t>(policy->weight_bytes[1])), " in memory, ",
                        Bytes(static_cast<int64_t>(policy->weight_bytes[2])), " on disk"));
  }
  absl::StrAppend(&page, "</table>\n");
}

void AddLanes(const SweepTimes& times, std::string& page) {
  if (times.sweeps == 0) {
    return;
  }
  absl::StrAppend(&page, "<h2>Lanes</h2>\n<p class=\"quiet\">of ", Grouped(times.sweeps),
                  " sweeps since the model was loaded, which took ",
                  times.wall_us < 1'000'000 ? "less than a second"
                                            : Duration(times.wall_us / 1'000'000),
                  "</p>\n<table>\n<tr><th>lane</th><th>busy</th><th>computing waited</th>"
                  "<th class=\"number\">moved</th></tr>\n");
  for (size_t i = 0; i < kNumLanes; ++i) {
    const auto lane = static_cast<LaneId>(i);
    const LaneTimes& of = times.of(lane);
    if (of.busy_us > 0) {
      absl::StrAppend(&page, "<tr><td class=\"name\">", LaneName(lane), "</td><td>",
                      Bar(Share(of.busy_us, times.wall_us)), "</td><td>",
                      Percent(Share(of.waited_us, times.wall_us)), "</td><td class=\"number\">",
                      of.bytes > 0 ? Bytes(of.bytes) : "", "</td></tr>\n");
    }
  }
  absl::StrAppend(&page, "</table>\n");
}

std::string Labels(const v1::Job& job) {
  const std::map<std::string, std::string> sorted(job.labels().begin(), job.labels().end());
  const bool has_tenant = !job.tenant().empty() && job.tenant() != kDefaultTenant;
  std::string text = has_tenant ? absl::StrCat("tenant ", job.tenant()) : "";
  for (const auto& [key, value] : sorted) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", key, "=", value);
  }
  return text.empty() ? "" : absl::StrCat("<br><span class=\"quiet\">", Text(text), "</span>");
}

std::string TimeLeftText(const v1::Job& job) {
  if (!job.waits_for_model().empty()) {
    return Text(job.waits_for_model());
  }
  if (!job.waits_for().empty()) {
    return absl::StrCat("after ", Text(job.waits_for()));
  }
  if (job.has_next_run_time()) {
    return absl::StrCat("runs from ", Time(job.next_run_time().seconds() * 1'000'000));
  }
  return job.progress().has_eta() ? absl::StrCat(Duration(job.progress().eta().seconds()), " left")
                                  : "";
}

void AddJob(const v1::Job& job, std::string& page) {
  const v1::JobCounts& counts = job.counts();
  const std::string state =
      StoredState(job.state()).has_value() ? StateText(*StoredState(job.state())) : "unknown";
  const int64_t ended = counts.total() - counts.pending() - counts.running();
  absl::StrAppend(&page, "<tr><td>", Text(job.name()), Labels(job), "</td><td>",
                  Text(job.spec().model()), "</td><td class=\"short\">", state,
                  "</td><td class=\"short\">", Bar(Share(ended, counts.total())), "</td>",
                  "<td class=\"number\">", Grouped(ended), " / ", Grouped(counts.total()), "</td>",
                  "<td class=\"number\">", Grouped(counts.failed()), "</td><td>", TimeLeftText(job),
                  "</td></tr>\n");
}

void AddJobs(const DaemonStatus& status, std::string& page) {
  absl::StrAppend(&page, "<h2>Jobs</h2>\n");
  if (!status.jobs_status.ok()) {
    absl::StrAppend(&page, "<p class=\"bad\">", Text(status.jobs_status.message()), "</p>\n");
    return;
  }
  std::string ended;
  for (const auto& [state, count] : status.num_jobs) {
    if (IsTerminal(state)) {
      absl::StrAppend(&ended, ", ", Grouped(count), " ", StateText(state));
    }
  }
  absl::StrAppend(&page, "<p class=\"quiet\">", status.open_jobs.size(), " open", ended, "</p>\n");
  if (status.open_jobs.empty()) {
    return;
  }
  absl::StrAppend(&page,
                  "<table>\n<tr><th>job</th><th>model</th><th>state</th><th>done</th>"
                  "<th class=\"number\">requests</th><th class=\"number\">failed</th>"
                  "<th></th></tr>\n");
  for (size_t i = 0; i < std::min(status.open_jobs.size(), kMaxJobs); ++i) {
    AddJob(status.open_jobs[i], page);
  }
  absl::StrAppend(&page, "</table>\n");
  if (status.open_jobs.size() > kMaxJobs) {
    absl::StrAppend(&page, "<p class=\"quiet\">and ", status.open_jobs.size() - kMaxJobs,
                    " more: nightshift list</p>\n");
  }
}

void AddModels(const std::vector<CatalogModel>& models, std::string& page) {
  absl::StrAppend(&page, "<h2>Models</h2>\n<table>\n");
  for (const CatalogModel& model : models) {
    AddRow(page, Text(model.name),
           model.status.ok()
               ? absl::StrCat(Text(model.architecture), ", ", DTypeName(model.weights), ", ",
                              Bytes(model.bytes), ", context of ", Grouped(model.context_tokens),
                              " tokens")
               : absl::StrCat("<span class=\"bad\">cannot be served</span> ",
                              Text(model.status.message())));
  }
  absl::StrAppend(&page, "</table>\n", models.empty() ? "<p>none: nightshift import</p>\n" : "");
}

void AddDisk(const DiskStatus& disk, std::string& page) {
  absl::StrAppend(&page, "<h2>Disk of the state directory</h2>\n<table>\n");
  AddRow(page, "used",
         absl::StrCat(Bar(Share(disk.total_bytes - disk.free_bytes, disk.total_bytes)), ", ",
                      Bytes(disk.free_bytes), " of ", Bytes(disk.total_bytes), " free, ",
                      Bytes(disk.reserve_bytes), " of them kept for accepted jobs"));
  AddRow(page, "database",
         absl::StrCat(Bytes(disk.database_bytes), ", its log ", Bytes(disk.log_bytes)));
  absl::StrAppend(&page, "</table>\n");
}

void AddProblems(const std::vector<LoggedLine>& problems, std::string& page) {
  absl::StrAppend(&page, "<h2>Last warnings and errors</h2>\n");
  if (problems.empty()) {
    absl::StrAppend(&page, "<p class=\"quiet\">none since the start</p>\n");
    return;
  }
  absl::StrAppend(&page, "<table>\n");
  for (auto line = problems.rbegin(); line != problems.rend(); ++line) {
    const bool is_error = line->level == LogLevel::kError;
    absl::StrAppend(&page, "<tr><td class=\"name\">", Time(line->wall_us),
                    "</td><td class=\"short\">",
                    is_error ? "<span class=\"bad\">error</span>" : "warning", "</td><td>",
                    Text(line->text), "</td></tr>\n");
  }
  absl::StrAppend(&page, "</table>\n");
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  // Whole characters only, then those that HTML gives a meaning.
  const std::string clean = CleanText(PrintableText(text, LineBreaks::kEscape), INT64_MAX);
  std::string html;
  for (const char character : clean) {
    switch (character) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += character;
    }
  }
  return html;
}

std::string StatusPage(const DaemonStatus& status, const std::vector<LoggedLine>& problems) {
  std::string page = kHead;
  AddTop(status, page);
  AddJobs(status, page);
  AddEngine(status, page);
  AddLanes(status.runner.times, page);
  AddModels(status.models, page);
  AddDisk(status.disk, page);
  AddProblems(problems, page);
  absl::StrAppend(&page, "</body></html>\n");
  return page;
}

}  // namespace nightshift
