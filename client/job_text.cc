#include "client/job_text.h"

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "client/console.h"
#include "client/progress.h"
#include "client/rpc_error.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

struct StateName {
  v1::JobState state;
  const char* text;
};
constexpr StateName kStateNames[] = {
    {v1::JOB_STATE_QUEUED, "queued"},         {v1::JOB_STATE_VALIDATING, "validating"},
    {v1::JOB_STATE_RUNNING, "running"},       {v1::JOB_STATE_PAUSED, "paused"},
    {v1::JOB_STATE_CANCELLING, "cancelling"}, {v1::JOB_STATE_SUCCEEDED, "succeeded"},
    {v1::JOB_STATE_FAILED, "failed"},         {v1::JOB_STATE_CANCELLED, "cancelled"},
    {v1::JOB_STATE_EXPIRED, "expired"},
};

absl::Time TimeOf(const google::protobuf::Timestamp& stamp) {
  return absl::FromUnixSeconds(stamp.seconds()) + absl::Nanoseconds(stamp.nanos());
}

std::string LocalTime(const google::protobuf::Timestamp& stamp) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", TimeOf(stamp), absl::LocalTimeZone());
}

std::string AgeText(const google::protobuf::Timestamp& stamp, absl::Time now) {
  return absl::StrCat(ShortDuration(now - TimeOf(stamp)), " ago");
}

Json TimeJson(bool known, const google::protobuf::Timestamp& stamp) {
  if (!known) {
    return nullptr;
  }
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", TimeOf(stamp), absl::UTCTimeZone());
}

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void AddField(std::string& text, absl::string_view key, absl::string_view value) {
  absl::StrAppendFormat(&text, "%-10s  %s\n", key, OneLine(value));
}

// Columns as wide as their longest cell, two spaces apart; the last is not padded.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) {
        line.append(widths[i] - row[i].size() + 2, ' ');
      }
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string CountsText(const v1::JobCounts& counts) {
  std::string text = absl::StrCat(GroupedNumber(counts.total()), " requests");
  const auto add = [&](int64_t count, absl::string_view what) {
    if (count > 0) {
      absl::StrAppend(&text, ", ", GroupedNumber(count), " ", what);
    }
  };
  add(counts.succeeded(), "succeeded");
  add(counts.failed(), "failed");
  add(counts.cancelled(), "cancelled");
  add(counts.expired(), "expired");
  add(counts.running(), "running");
  add(counts.pending(), "pending");
  return text;
}

Json CountsJson(const v1::JobCounts& counts) {
  return {{"total", counts.total()},     {"pending", counts.pending()},
          {"running", counts.running()}, {"succeeded", counts.succeeded()},
          {"failed", counts.failed()},   {"cancelled", counts.cancelled()},
          {"expired", counts.expired()}};
}

Json JobErrorJson(const v1::Job& job) {
  if (!job.has_error()) {
    return nullptr;
  }
  return {{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(job.error().code()))},
          {"reason", DetailsOf(job.error()).reason},
          {"message", job.error().message()}};
}

Json TlsJson(const v1::ServerInfo& info) {
  if (!info.has_tls()) {
    return nullptr;
  }
  const std::string& refused = info.tls().refused();
  return {{"expire_time", TimeJson(true, info.tls().expire_time())},
          {"refused", refused.empty() ? Json(nullptr) : Json(refused)}};
}

Json SecondsJson(bool known, const google::protobuf::Duration& duration) {
  return known ? Json(duration.seconds()) : Json(nullptr);
}

Json ProgressJson(const v1::Progress& progress) {
  return {{"fraction", progress.fraction()},
          {"tokens_per_second", progress.tokens_per_second()},
          {"checked_requests", progress.checked_requests()},
          {"checked_prompt_tokens", progress.checked_prompt_tokens()},
          {"eta_s", SecondsJson(progress.has_eta(), progress.eta())},
          {"eta_low_s", SecondsJson(progress.has_eta_low(), progress.eta_low())},
          {"eta_high_s", SecondsJson(progress.has_eta_high(), progress.eta_high())}};
}

Json PredictionJson(const v1::Report& report) {
  if (!report.has_prediction()) {
    return nullptr;
  }
  const v1::PredictionReport& prediction = report.prediction();
  Json lanes = Json::array();
  for (const v1::LaneReport& lane : report.lanes()) {
    lanes.push_back({{"name", lane.name()},
                     {"predicted_us", lane.predicted_us()},
                     {"observed_us", lane.compared_us()}});
  }
  Json pools = Json::array();
  for (const v1::PoolReport& pool : prediction.pools()) {
    pools.push_back({{"name", pool.name()},
                     {"predicted_bytes", pool.predicted_bytes()},
                     {"observed_bytes", pool.observed_bytes()}});
  }
  return {{"sweeps", prediction.sweeps()},
          {"observed_us", prediction.wall_us()},
          {"predicted_us", prediction.predicted_wall_us()},
          {"tokens", prediction.tokens()},
          {"tokens_per_s", prediction.tokens_per_s()},
          {"predicted_tokens_per_s", prediction.predicted_tokens_per_s()},
          {"lanes", lanes},
          {"pools", pools},
          {"constraint", prediction.constraint()},
          {"planned_requests", prediction.planned_requests()},
          {"planned_seconds", prediction.planned_seconds()},
          {"planned_tokens_per_s", prediction.planned_tokens_per_s()}};
}

Json ReportJson(const v1::Job& job) {
  if (!job.has_report()) {
    return nullptr;
  }
  const v1::Report& report = job.report();
  Json lanes = Json::array();
  for (const v1::LaneReport& lane : report.lanes()) {
    lanes.push_back({{"name", lane.name()},
                     {"busy_share", lane.busy_share()},
                     {"waited_share", lane.waited_share()},
                     {"busy_us", lane.busy_us()},
                     {"waited_us", lane.waited_us()},
                     {"bytes", lane.bytes()}});
  }
  return {{"sweeps", report.sweeps()},
          {"seconds", static_cast<double>(report.wall_us()) * 1e-6},
          {"bottleneck", report.bottleneck()},
          {"lanes", lanes},
          {"prediction", PredictionJson(report)}};
}

std::string PlanningText(const v1::Planning& planning) {
  if (planning.hardware().empty()) {
    return "no hardware profile; measure one with: nightshift calibrate";
  }
  std::string text =
      absl::StrCat("with the profile ", planning.hardware(), ": ", GroupedNumber(planning.plans()),
                   " plans, ", GroupedNumber(planning.replans()), " in place of another, ",
                   GroupedNumber(planning.failed_allocations()), " without room");
  if (planning.predicted_jobs() > 0) {
    absl::StrAppendFormat(&text, "; predicted/observed time %.2f last, %.2f median",
                          planning.last_time_ratio(), planning.median_time_ratio());
  }
  return text;
}

Json PlanningJson(const v1::Planning& planning) {
  return {{"hardware", planning.hardware()},
          {"plans", planning.plans()},
          {"replans", planning.replans()},
          {"failed_allocations", planning.failed_allocations()},
          {"predicted_jobs", planning.predicted_jobs()},
          {"last_time_ratio", planning.last_time_ratio()},
          {"median_time_ratio", planning.median_time_ratio()}};
}

// "compute 60.1 s, 58.0 s predicted"
std::string ComparedText(const std::string& what, int64_t observed_us, int64_t predicted_us) {
  return absl::StrFormat("%s %.3g s, %.3g s predicted", what,
                         static_cast<double>(observed_us) * 1e-6,
                         static_cast<double>(predicted_us) * 1e-6);
}

}  // namespace

std::string PredictionText(const v1::Report& report) {
  const v1::PredictionReport& prediction = report.prediction();
  std::string text = ComparedText("sweeps", prediction.wall_us(), prediction.predicted_wall_us());
  if (prediction.wall_us() > 0) {
    absl::StrAppendFormat(&text, " (%+.0f %%)",
                          100.0 * (static_cast<double>(prediction.predicted_wall_us()) /
                                       static_cast<double>(prediction.wall_us()) -
                                   1.0));
  }
  absl::StrAppendFormat(&text, "; %.4g tokens/s, %.4g predicted", prediction.tokens_per_s(),
                        prediction.predicted_tokens_per_s());
  for (const v1::LaneReport& lane : report.lanes()) {
    absl::StrAppend(&text, "; ",
                    ComparedText(lane.name(), lane.compared_us(), lane.predicted_us()));
  }
  for (const v1::PoolReport& pool : prediction.pools()) {
    absl::StrAppend(&text, "; ", pool.name(), " ", ByteSize(pool.observed_bytes()), ", ",
                    ByteSize(pool.predicted_bytes()), " predicted");
  }
  return text;
}

std::string BottleneckText(const v1::Report& report) {
  constexpr double kLeastShown = 0.005;
  std::vector<std::string> others;
  const v1::LaneReport* waited_for = nullptr;
  for (const v1::LaneReport& lane : report.lanes()) {
    if (!absl::StartsWith(report.bottleneck(), lane.name() + " ") &&
        lane.busy_share() >= kLeastShown) {
      others.push_back(absl::StrFormat("%s %.0f %%", lane.name(), 100 * lane.busy_share()));
    }
    if (waited_for == nullptr || lane.waited_share() > waited_for->waited_share()) {
      waited_for = &lane;
    }
  }
  if (waited_for != nullptr && waited_for->waited_share() >= kLeastShown) {
    others.push_back(absl::StrFormat("waited for %s %.0f %% of the time", waited_for->name(),
                                     100 * waited_for->waited_share()));
  }
  return others.empty() ? report.bottleneck()
                        : absl::StrCat(report.bottleneck(), " (", absl::StrJoin(others, ", "), ")");
}

std::string StateText(v1::JobState state) {
  for (const StateName& name : kStateNames) {
    if (name.state == state) {
      return name.text;
    }
  }
  return absl::StrCat("state ", static_cast<int>(state));
}

v1::JobState ParseState(absl::string_view text) {
  for (const StateName& name : kStateNames) {
    if (name.text == text) {
      return name.state;
    }
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

std::string OutcomeText(const v1::Job& job) {
  std::string text = CountsText(job.counts());
  absl::StrAppend(&text, ", ", GroupedNumber(job.tokens().output()), " output tokens");
  if (job.has_start_time() && job.has_end_time()) {
    const absl::Duration took = TimeOf(job.end_time()) - TimeOf(job.start_time());
    absl::StrAppend(&text, " in ",
                    took < absl::Seconds(10) ? absl::StrFormat("%.1fs", absl::ToDoubleSeconds(took))
                                             : ShortDuration(took));
  }
  return text;
}

std::string WaitsForText(const v1::Job& job) {
  std::vector<std::string> parts;
  if (job.held()) {
    parts.push_back("the daemon, which is drained (nightshift server drain --undo)");
  }
  if (!job.waits_for().empty()) {
    parts.push_back(OneLine(job.waits_for()));
  }
  if (!job.waits_for_model().empty()) {
    parts.push_back(absl::StrCat("its model: ", OneLine(job.waits_for_model())));
  }
  if (job.has_next_run_time()) {
    parts.push_back(LocalTime(job.next_run_time()));
  }
  return absl::StrJoin(parts, "; ");
}

std::string JobText(const v1::Job& job, absl::Time now) {
  std::string text;
  AddField(text, "job", job.name());
  AddField(text, "state", StateText(job.state()));
  if (job.has_error()) {
    AddField(text, "error", job.error().message());
  }
  AddField(text, "model", job.spec().model());
  AddField(text, "requests", CountsText(job.counts()));
  AddField(text, "tokens",
           absl::StrCat(GroupedNumber(job.tokens().prompt()), " prompt, ",
                        GroupedNumber(job.tokens().output()), " output"));
  if (job.state() == v1::JOB_STATE_RUNNING) {
    AddField(text, "progress", ProgressText(job, false));
  }
  if (job.has_report()) {
    AddField(text, "bottleneck", BottleneckText(job.report()));
  }
  if (job.report().has_prediction()) {
    const v1::PredictionReport& prediction = job.report().prediction();
    AddField(text, "prediction", PredictionText(job.report()));
    AddField(text, "plan",
             absl::StrFormat("%s requests in %s, %.4g tokens/s; %s",
                             GroupedNumber(prediction.planned_requests()),
                             ShortDuration(absl::Seconds(prediction.planned_seconds())),
                             prediction.planned_tokens_per_s(), prediction.constraint()));
  }
  if (job.has_create_time()) {
    AddField(
        text, "created",
        absl::StrCat(LocalTime(job.create_time()), " (", AgeText(job.create_time(), now), ")"));
  }
  if (job.has_start_time()) {
    AddField(text, "started", LocalTime(job.start_time()));
  }
  if (job.has_end_time()) {
    AddField(text, "ended", LocalTime(job.end_time()));
  } else if (job.has_expire_time()) {
    AddField(text, "expires", LocalTime(job.expire_time()));
  }
  if (const std::string waits = WaitsForText(job); !waits.empty()) {
    AddField(text, "waits for", waits);
  }
  if (!job.spec().run_window().empty()) {
    AddField(text, "window", job.spec().run_window());
  }
  if (!job.retry_of().empty()) {
    AddField(text, "retry of", job.retry_of());
  }
  if (job.results_expired()) {
    AddField(text, "results", "not kept any more");
  }
  std::vector<std::string> labels;
  for (const auto& [key, value] : job.labels()) {
    labels.push_back(absl::StrCat(key, "=", value));
  }
  std::sort(labels.begin(), labels.end());
  if (!labels.empty()) {
    AddField(text, "labels", absl::StrJoin(labels, " "));
  }
  return text;
}

std::string JobsTable(const std::vector<v1::Job>& jobs, absl::Time now) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "STATE", "DONE", "FAILED", "MODEL", "CREATED"}};
  const bool any_waits = std::any_of(jobs.begin(), jobs.end(), [](const v1::Job& job) {
    return !WaitsForText(job).empty();
  });
  if (any_waits) {
    rows.front().push_back("WAITS FOR");
  }
  for (const v1::Job& job : jobs) {
    rows.push_back({OneLine(job.name()), StateText(job.state()),
                    absl::StrCat(DoneOf(job.counts()), "/", job.counts().total()),
                    absl::StrCat(job.counts().failed()), OneLine(job.spec().model()),
                    AgeText(job.create_time(), now)});
    if (any_waits) {
      rows.back().push_back(WaitsForText(job));
    }
  }
  return Table(rows);
}

std::string ModelsTable(const std::vector<v1::Model>& models) {
  std::vector<std::vector<std::string>> rows = {
      {"MODEL", "ARCHITECTURE", "PARAMETERS", "SIZE", "CONTEXT", "STATUS"}};
  for (const v1::Model& model : models) {
    std::string status = model.loaded() ? "loaded" : "ready";
    if (!model.error().empty()) {
      status = absl::StrCat("cannot be served: ", OneLine(model.error()));
    } else if (!model.has_tokenizer()) {
      status += ", token ids only";
    } else if (!model.has_chat_template()) {
      status += ", no chat template";
    }
    rows.push_back({OneLine(model.name()), OneLine(model.architecture()),
                    GroupedNumber(model.parameters()), ByteSize(model.bytes()),
                    GroupedNumber(model.context_tokens()), status});
  }
  return Table(rows);
}

std::string ServerInfoText(const v1::ServerInfo& info, const std::string& address, absl::Time now) {
  std::string text;
  AddField(text, "address", address);
  AddField(text, "version", info.version());
  AddField(text, "api", absl::StrJoin(info.api_versions(), " "));
  AddField(text, "instance", info.instance_id());
  AddField(text, "up", ShortDuration(now - TimeOf(info.start_time())));
  AddField(text, "state",
           info.draining() ? "drained: accepts and runs nothing until nightshift server drain --undo"
                           : "accepting jobs");
  if (info.has_tls()) {
    AddField(text, "certificate",
             absl::StrCat("expires in ", ShortDuration(TimeOf(info.tls().expire_time()) - now),
                          info.tls().refused().empty()
                              ? ""
                              : absl::StrCat("; the one in its place is refused: ",
                                             info.tls().refused())));
  }
  AddField(text, "storage", info.storage());
  AddField(text, "device", info.device().empty() ? "none until a model is loaded" : info.device());
  AddField(text, "memory", absl::StrCat(ByteSize(info.memory_budget_bytes()), " budget"));
  AddField(text, "loaded", info.loaded_model().empty() ? "no model" : info.loaded_model());
  AddField(text, "keys, values",
           absl::StrCat(info.kv_type(),
                        info.allow_lossy() ? "; auto may be int8 or int4" : "; auto is none"));
  if (info.sparse_attention() > 0.0 && info.sparse_attention() < 1.0) {
    AddField(text, "attention",
             absl::StrCat("generated tokens attend to ", info.sparse_attention(),
                          " of the values, unless a job says otherwise"));
  }
  if (!info.bottleneck().empty()) {
    AddField(text, "bottleneck", info.bottleneck());
  }
  AddField(text, "planning", PlanningText(info.planning()));
  AddField(text, "features", absl::StrJoin(info.features(), " "));
  return text;
}

std::string JobJson(const v1::Job& job) {
  Json labels = Json::object();
  for (const auto& [key, value] : job.labels()) {
    labels[key] = value;
  }
  return Line({{"name", job.name()},
               {"uid", job.uid()},
               {"state", StateText(job.state())},
               {"model", job.spec().model()},
               {"counts", CountsJson(job.counts())},
               {"tokens",
                {{"prompt", job.tokens().prompt()},
                 {"output", job.tokens().output()},
                 {"cached", job.tokens().cached()}}},
               {"progress", ProgressJson(job.progress())},
               {"report", ReportJson(job)},
               {"last_seq", job.last_seq()},
               {"create_time", TimeJson(job.has_create_time(), job.create_time())},
               {"start_time", TimeJson(job.has_start_time(), job.start_time())},
               {"end_time", TimeJson(job.has_end_time(), job.end_time())},
               {"expire_time", TimeJson(job.has_expire_time(), job.expire_time())},
               {"next_run_time", TimeJson(job.has_next_run_time(), job.next_run_time())},
               {"waits_for", job.waits_for().empty() ? Json(nullptr) : Json(job.waits_for())},
               {"waits_for_model",
                job.waits_for_model().empty() ? Json(nullptr) : Json(job.waits_for_model())},
               {"held", job.held()},
               {"retry_of", job.retry_of().empty() ? Json(nullptr) : Json(job.retry_of())},
               {"results_expired", job.results_expired()},
               {"attached", job.attached()},
               {"error", JobErrorJson(job)},
               {"labels", labels}});
}

std::string DeletedJson(const std::string& job) {
  return Line({{"name", job}, {"deleted", true}});
}

std::string BackupJson(const std::string& folder, const v1::BackupResponse& copied) {
  return Line({{"folder", folder}, {"jobs", copied.jobs()}, {"bytes", copied.bytes()}});
}

std::string FileJson(const std::string& path, int64_t bytes) {
  return Line({{"file", path}, {"bytes", bytes}});
}

std::string ModelJson(const v1::Model& model) {
  return Line({{"name", model.name()},
               {"architecture", model.architecture()},
               {"digest", model.digest()},
               {"weights", model.weights()},
               {"parameters", model.parameters()},
               {"bytes", model.bytes()},
               {"context_tokens", model.context_tokens()},
               {"has_tokenizer", model.has_tokenizer()},
               {"has_chat_template", model.has_chat_template()},
               {"loaded", model.loaded()},
               {"error", model.error().empty() ? Json(nullptr) : Json(model.error())}});
}

std::string ServerInfoJson(const v1::ServerInfo& info, const std::string& address) {
  const v1::Limits& limits = info.limits();
  Json features = Json::array();
  for (const std::string& feature : info.features()) {
    features.push_back(feature);
  }
  Json api_versions = Json::array();
  for (const std::string& version : info.api_versions()) {
    api_versions.push_back(version);
  }
  return Line({{"address", address},
               {"version", info.version()},
               {"api_versions", api_versions},
               {"instance_id", info.instance_id()},
               {"draining", info.draining()},
               {"start_time", TimeJson(info.has_start_time(), info.start_time())},
               {"tls", TlsJson(info)},
               {"storage", info.storage()},
               {"device", info.device()},
               {"memory_budget_bytes", info.memory_budget_bytes()},
               {"loaded_model", info.loaded_model()},
               {"kv_type", info.kv_type()},
               {"allow_lossy", info.allow_lossy()},
               {"sparse_attention", info.sparse_attention()},
               {"bottleneck", info.bottleneck()},
               {"planning", PlanningJson(info.planning())},
               {"features", features},
               {"limits",
                {{"max_message_bytes", limits.max_message_bytes()},
                 {"max_chunk_bytes", limits.max_chunk_bytes()},
                 {"max_line_bytes", limits.max_line_bytes()},
                 {"max_prompt_bytes", limits.max_prompt_bytes()},
                 {"max_requests_per_job", limits.max_requests_per_job()},
                 {"max_custom_id_bytes", limits.max_custom_id_bytes()},
                 {"max_choices", limits.max_choices()}}}});
}

}  // namespace nightshift
