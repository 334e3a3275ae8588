#include "engine/execute/step_lanes.h"

#include <utility>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

bool BringsWeights(StepKind kind) {
  return kind == StepKind::kReadWeights || kind == StepKind::kUploadWeights;
}

}  // namespace

StepLanes::~StepLanes() {
  lanes_.clear();
  for (const auto& [id, record] : records_) {
    static_cast<void>(WaitForRecord(*record));
  }
}

StepLanes::Record& StepLanes::Add(const Step& step) {
  auto record = std::make_shared<Record>();
  record->step = step;
  record->times = {.kind = step.kind,
                   .lane = LaneOf(step.kind),
                   .layer = step.layer,
                   .batch = step.batch,
                   .bytes = step.bytes,
                   .issue_us = clock_.MonotonicMicros()};
  return *(records_[step.id] = std::move(record));
}

// Steps that are not there any more ended well.
StepLanes::Waits StepLanes::WaitsOf(const Step& step) {
  Waits waits;
  for (const int64_t id : step.waits) {
    const auto found = records_.find(id);
    if (found == records_.end()) {
      continue;
    }
    if (found->second->is_transfer) {
      waits.fences.push_back(&found->second->begun);
    }
    waits.fences.push_back(&found->second->done);
    waits.records.push_back(found->second);
  }
  return waits;
}

Lane& StepLanes::LaneFor(const Step& step) {
  std::unique_ptr<Lane>& lane = lanes_[{LaneOf(step.kind), step.kind == StepKind::kReadWeights}];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>(clock_);
  }
  return *lane;
}

void StepLanes::Issue(const Step& step, std::function<absl::Status()> work) {
  Record& record = Add(step);
  Waits waits = WaitsOf(step);
  LaneFor(step).Issue(
      std::move(waits.fences),
      [this, &record, kept = std::move(waits.records), work = std::move(work)] {
        record.times.start_us = clock_.MonotonicMicros();
        return work();
      },
      &record.done);
}

void StepLanes::IssueTransfer(const Step& step, std::function<void(Fence*)> begin) {
  Record& record = Add(step);
  record.is_transfer = true;
  Waits waits = WaitsOf(step);
  LaneFor(step).Issue(
      std::move(waits.fences),
      [this, &record, kept = std::move(waits.records), begin = std::move(begin)] {
        record.times.start_us = clock_.MonotonicMicros();
        begin(&record.done);
        return absl::OkStatus();
      },
      &record.begun);
}

absl::Status StepLanes::RunNow(LaneId lane, std::function<absl::Status()> work) {
  std::unique_ptr<Lane>& place = lanes_[{lane, false}];
  if (place == nullptr) {
    place = std::make_unique<Lane>(clock_);
  }
  Fence done;
  place->Issue({}, std::move(work), &done);
  return done.Wait();
}

absl::Status StepLanes::WaitForRecord(Record& record) {
  if (record.is_transfer) {
    const absl::Status begun = record.begun.Wait();
    if (!begun.ok()) {
      return begun;
    }
  }
  return record.done.Wait();
}

void StepLanes::NoteFailure(const Record& record, const absl::Status& status) {
  if (!status.ok() && !failure_.has_value()) {
    failure_ = {record.step, status};
  }
}

void StepLanes::Begin(const Step& computation) {
  const int64_t begin_us = clock_.MonotonicMicros();
  for (const int64_t id : computation.waits) {
    const auto found = records_.find(id);
    if (found == records_.end()) {
      continue;
    }
    Record& record = *found->second;
    const int64_t before_us = clock_.MonotonicMicros();
    NoteFailure(record, WaitForRecord(record));
    record.times.waited_us += clock_.MonotonicMicros() - before_us;
  }
  StepTimes& times = Add(computation).times;
  const int64_t computed_us = begin_us - piece_ended_us_.value_or(begin_us);
  times.issue_us -= computed_us;
  times.start_us = times.issue_us;
}

void StepLanes::End(const Step& computation, absl::Status status) {
  Record& record = *records_.at(computation.id);
  record.done.Complete(std::move(status));
  piece_ended_us_.reset();
  if (!computation.is_last_piece) {
    piece_ended_us_ = record.done.completed_us();
  }
}

std::vector<StepTimes> StepLanes::EndSweep() {
  std::vector<StepTimes> times;
  for (auto next = records_.begin(); next != records_.end();) {
    Record& record = *next->second;
    if (BringsWeights(record.step.kind) && !record.done.is_complete()) {
      ++next;
      continue;
    }
    const absl::Status status = WaitForRecord(record);
    NoteFailure(record, status);
    record.times.end_us = record.done.completed_us();
    times.push_back(record.times);
    // One that failed fails those that wait for it in the next sweep too.
    next = status.ok() ? records_.erase(next) : std::next(next);
  }
  return times;
}

}  // namespace nightshift
