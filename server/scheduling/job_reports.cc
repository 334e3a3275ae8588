#include "server/scheduling/job_reports.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"

#include "kernels/base/log.h"

namespace nightshift {
namespace {

constexpr double kMicrosPerSecond = 1e6;

struct PoolField {
  const char* name;
  int64_t PoolBytes::*bytes;
};
constexpr std::array<PoolField, 3> kPools = {PoolField{"device", &PoolBytes::device},
                                             PoolField{"host", &PoolBytes::host},
                                             PoolField{"kv pages", &PoolBytes::kv}};

double ShareOf(int64_t part_us, int64_t wall_us) {
  return wall_us > 0 ? static_cast<double>(part_us) / static_cast<double>(wall_us) : 0;
}

// A stored number may be anything.
int64_t Micros(double seconds) {
  constexpr double kMost = 9e18;
  return std::llround(std::clamp(seconds * kMicrosPerSecond, 0.0, kMost));
}

double PerSecond(int64_t count, double micros) {
  return micros > 0.0 ? static_cast<double>(count) * kMicrosPerSecond / micros : 0.0;
}

void TakeMost(const PoolBytes& other, PoolBytes& most) {
  for (const PoolField& pool : kPools) {
    most.*pool.bytes = std::max(most.*pool.bytes, other.*pool.bytes);
  }
}

std::string Underscored(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// " read_busy=0.930 read_bytes=1000 read_waited=0.520"
std::string LaneText(const v1::LaneReport& lane) {
  const std::string name = Underscored(lane.name());
  return absl::StrFormat(" %s_busy=%.3f %s_bytes=%d %s_waited=%.3f", name, lane.busy_share(), name,
                         lane.bytes(), name, lane.waited_share());
}

// " predicted_us=90 compared_us=100 ... read_predicted_us=80 read_compared_us=93"
std::string PredictionText(const v1::Report& report) {
  const v1::PredictionReport& prediction = report.prediction();
  std::string text = absl::StrFormat(
      " predicted_us=%d compared_us=%d predicted_tokens_per_s=%.4g tokens_per_s=%.4g "
      "planned_requests=%d planned_s=%.4g constraint=\"%s\"",
      prediction.predicted_wall_us(), prediction.wall_us(), prediction.predicted_tokens_per_s(),
      prediction.tokens_per_s(), prediction.planned_requests(), prediction.planned_seconds(),
      prediction.constraint());
  for (const v1::LaneReport& lane : report.lanes()) {
    const std::string name = Underscored(lane.name());
    absl::StrAppendFormat(&text, " %s_predicted_us=%d %s_compared_us=%d", name, lane.predicted_us(),
                          name, lane.compared_us());
  }
  for (const v1::PoolReport& pool : prediction.pools()) {
    const std::string name = Underscored(pool.name());
    absl::StrAppendFormat(&text, " %s_predicted_bytes=%d %s_bytes=%d", name, pool.predicted_bytes(),
                          name, pool.observed_bytes());
  }
  return text;
}

void FillPrediction(const JobWork& work, v1::PredictionReport& prediction) {
  const PlannedSweep& planned = work.planned;
  prediction.set_sweeps(work.compared.sweeps);
  prediction.set_wall_us(work.compared.wall_us);
  prediction.set_predicted_wall_us(Micros(planned.wall_seconds));
  prediction.set_tokens(work.tokens);
  prediction.set_tokens_per_s(PerSecond(work.tokens, static_cast<double>(work.compared.wall_us)));
  prediction.set_predicted_tokens_per_s(
      PerSecond(work.tokens, planned.wall_seconds * kMicrosPerSecond));
  for (const PoolField& pool : kPools) {
    if (planned.pools.*pool.bytes > 0 || work.pools.*pool.bytes > 0) {
      v1::PoolReport& wire = *prediction.add_pools();
      wire.set_name(pool.name);
      wire.set_predicted_bytes(planned.pools.*pool.bytes);
      wire.set_observed_bytes(work.pools.*pool.bytes);
    }
  }
  prediction.set_constraint(planned.constraint);
  prediction.set_planned_requests(planned.requests);
  prediction.set_planned_seconds(planned.seconds);
  prediction.set_planned_tokens_per_s(planned.tokens_per_s);
}

void ReadPrediction(const v1::PredictionReport& prediction, JobWork& work) {
  PlannedSweep& planned = work.planned;
  work.compared.sweeps = prediction.sweeps();
  work.compared.wall_us = prediction.wall_us();
  work.tokens = prediction.tokens();
  planned.wall_seconds = static_cast<double>(prediction.predicted_wall_us()) / kMicrosPerSecond;
  for (const v1::PoolReport& wire : prediction.pools()) {
    for (const PoolField& pool : kPools) {
      if (wire.name() == pool.name) {
        planned.pools.*pool.bytes = wire.predicted_bytes();
        work.pools.*pool.bytes = wire.observed_bytes();
      }
    }
  }
  planned.constraint = prediction.constraint();
  planned.requests = prediction.planned_requests();
  planned.seconds = prediction.planned_seconds();
  planned.tokens_per_s = prediction.planned_tokens_per_s();
}

}  // namespace

void JobWork::Add(const ReportedSweep& sweep) {
  times.Add(sweep.times);
  if (!sweep.planned.has_value()) {
    return;
  }
  compared.Add(sweep.times);
  tokens += sweep.tokens;
  TakeMost(sweep.pools, pools);
  PlannedSweep sums = *sweep.planned;
  sums.wall_seconds += planned.wall_seconds;
  for (size_t i = 0; i < kNumLanes; ++i) {
    sums.lanes[i] += planned.lanes[i];
  }
  TakeMost(planned.pools, sums.pools);
  planned = std::move(sums);
}

v1::Report MakeReport(const JobWork& work) {
  const SweepTimes& times = work.times;
  v1::Report report;
  report.set_sweeps(times.sweeps);
  report.set_wall_us(times.wall_us);
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneTimes& lane = times.lanes[i];
    const int64_t predicted_us = Micros(work.planned.lanes[i]);
    if (lane.busy_us == 0 && lane.bytes == 0 && lane.waited_us == 0 && predicted_us == 0) {
      continue;
    }
    v1::LaneReport& wire = *report.add_lanes();
    wire.set_name(LaneName(static_cast<LaneId>(i)));
    wire.set_bytes(lane.bytes);
    wire.set_busy_us(lane.busy_us);
    wire.set_waited_us(lane.waited_us);
    wire.set_busy_share(ShareOf(lane.busy_us, times.wall_us));
    wire.set_waited_share(ShareOf(lane.waited_us, times.wall_us));
    wire.set_compared_us(work.compared.lanes[i].busy_us);
    wire.set_predicted_us(predicted_us);
  }
  report.set_bottleneck(Bottleneck(times));
  if (work.compared.sweeps > 0) {
    FillPrediction(work, *report.mutable_prediction());
  }
  return report;
}

JobWork WorkOf(const v1::Report& report) {
  JobWork work;
  work.times.sweeps = report.sweeps();
  work.times.wall_us = report.wall_us();
  for (const v1::LaneReport& wire : report.lanes()) {
    for (size_t i = 0; i < kNumLanes; ++i) {
      if (wire.name() == LaneName(static_cast<LaneId>(i))) {
        work.times.lanes[i] = {
            .busy_us = wire.busy_us(), .bytes = wire.bytes(), .waited_us = wire.waited_us()};
        work.compared.lanes[i].busy_us = wire.compared_us();
        work.planned.lanes[i] = static_cast<double>(wire.predicted_us()) / kMicrosPerSecond;
      }
    }
  }
  ReadPrediction(report.prediction(), work);
  return work;
}

void JobReports::Begin(const std::string& job_id, const std::string& stored) {
  v1::Report report;
  if (!report.ParseFromString(stored)) {
    LOG(WARNING) << "report_dropped job=" << job_id;
    report.Clear();
  }
  work_[job_id] = WorkOf(report);
}

void JobReports::Add(const std::set<std::string>& job_ids, const ReportedSweep& sweep) {
  for (const std::string& job_id : job_ids) {
    const auto found = work_.find(job_id);
    if (found != work_.end()) {
      found->second.Add(sweep);
      changed_.insert(job_id);
    }
  }
}

std::vector<JobReport> JobReports::TakeChanged() {
  std::vector<JobReport> reports;
  for (const std::string& job_id : std::exchange(changed_, {})) {
    reports.push_back({.job_id = job_id, .report = MakeReport(work_[job_id]).SerializeAsString()});
  }
  return reports;
}

std::optional<double> JobReports::End(const std::string& job_id) {
  const v1::Report report = MakeReport(work_[job_id]);
  std::string lanes;
  for (const v1::LaneReport& lane : report.lanes()) {
    lanes += LaneText(lane);
  }
  LOG(INFO) << "job_report job=" << job_id << " sweeps=" << report.sweeps()
            << " sweeps_us=" << report.wall_us() << " bottleneck=\"" << report.bottleneck() << "\""
            << lanes << (report.has_prediction() ? PredictionText(report) : "");
  work_.erase(job_id);
  changed_.erase(job_id);
  const v1::PredictionReport& prediction = report.prediction();
  return prediction.wall_us() > 0
             ? std::optional(static_cast<double>(prediction.predicted_wall_us()) /
                             static_cast<double>(prediction.wall_us()))
             : std::nullopt;
}

}  // namespace nightshift
