#include "server/scheduling/job_reports.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"

#include "kernels/base/log.h"

namespace nightshift {
namespace {

double ShareOf(int64_t part_us, int64_t wall_us) {
  return wall_us > 0 ? static_cast<double>(part_us) / static_cast<double>(wall_us) : 0;
}

// " read_busy=0.930 read_bytes=1000 read_waited=0.520"
std::string LaneText(const v1::LaneReport& lane) {
  std::string name = lane.name();
  for (char& letter : name) {
    letter = letter == ' ' ? '_' : letter;
  }
  return absl::StrFormat(" %s_busy=%.3f %s_bytes=%d %s_waited=%.3f", name, lane.busy_share(), name,
                         lane.bytes(), name, lane.waited_share());
}

}  // namespace

v1::Report MakeReport(const SweepTimes& times) {
  v1::Report report;
  report.set_sweeps(times.sweeps);
  report.set_wall_us(times.wall_us);
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneTimes& lane = times.lanes[i];
    if (lane.busy_us == 0 && lane.bytes == 0 && lane.waited_us == 0) {
      continue;
    }
    v1::LaneReport& wire = *report.add_lanes();
    wire.set_name(LaneName(static_cast<LaneId>(i)));
    wire.set_bytes(lane.bytes);
    wire.set_busy_us(lane.busy_us);
    wire.set_waited_us(lane.waited_us);
    wire.set_busy_share(ShareOf(lane.busy_us, times.wall_us));
    wire.set_waited_share(ShareOf(lane.waited_us, times.wall_us));
  }
  report.set_bottleneck(Bottleneck(times));
  return report;
}

SweepTimes TimesOf(const v1::Report& report) {
  SweepTimes times;
  times.sweeps = report.sweeps();
  times.wall_us = report.wall_us();
  for (const v1::LaneReport& wire : report.lanes()) {
    for (size_t i = 0; i < kNumLanes; ++i) {
      if (wire.name() == LaneName(static_cast<LaneId>(i))) {
        times.lanes[i] = {
            .busy_us = wire.busy_us(), .bytes = wire.bytes(), .waited_us = wire.waited_us()};
      }
    }
  }
  return times;
}

void JobReports::Begin(const std::string& job_id, const std::string& stored) {
  v1::Report report;
  if (!report.ParseFromString(stored)) {
    LOG(WARNING) << "report_dropped job=" << job_id;
    report.Clear();
  }
  times_[job_id] = TimesOf(report);
}

void JobReports::Add(const std::set<std::string>& job_ids, const SweepTimes& sweep) {
  for (const std::string& job_id : job_ids) {
    const auto found = times_.find(job_id);
    if (found != times_.end()) {
      found->second.Add(sweep);
      changed_.insert(job_id);
    }
  }
}

std::vector<JobReport> JobReports::TakeChanged() {
  std::vector<JobReport> reports;
  for (const std::string& job_id : std::exchange(changed_, {})) {
    reports.push_back({.job_id = job_id, .report = MakeReport(times_[job_id]).SerializeAsString()});
  }
  return reports;
}

void JobReports::End(const std::string& job_id) {
  const v1::Report report = MakeReport(times_[job_id]);
  std::string lanes;
  for (const v1::LaneReport& lane : report.lanes()) {
    lanes += LaneText(lane);
  }
  LOG(INFO) << "job_report job=" << job_id << " sweeps=" << report.sweeps()
            << " sweeps_us=" << report.wall_us() << " bottleneck=\"" << report.bottleneck() << "\""
            << lanes;
  times_.erase(job_id);
  changed_.erase(job_id);
}

}  // namespace nightshift
