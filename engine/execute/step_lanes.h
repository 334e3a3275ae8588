// StepLanes: runs the steps of sweeps that are not computations on lanes of their own, and keeps
// the times of all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "engine/schedule/sweep_steps.h"
#include "engine/schedule/timeline.h"
#include "kernels/base/clock.h"
#include "kernels/base/fence.h"
#include "kernels/base/lane.h"

namespace nightshift {

// Used by one thread, whose work is the compute lane. Steps come in the order of SweepSteps, so all
// computations that a step waits for have ended when it is issued, and lanes never wait for this
// thread. What works refer to must outlive this.
class StepLanes {
 public:
  explicit StepLanes(const Clock& clock) : clock_(clock) {}
  ~StepLanes();

  // Runs `work` once all that the step waits for has ended, in the order of the step's lane. If
  // something of that failed the work is left out and the step fails with it.
  void Issue(const Step& step, std::function<absl::Status()> work);
  // The same for a transfer that `begin` starts and that ends by itself, completing the fence.
  void IssueTransfer(const Step& step, std::function<void(Fence*)> begin);
  // Runs `work` on a lane, after what was issued there, and waits for it.
  absl::Status RunNow(LaneId lane, std::function<absl::Status()> work);

  // Waits for all that a computation waits for. What was computed since the piece before it of the
  // same call is this one's: its time starts so much earlier.
  void Begin(const Step& computation);
  void End(const Step& computation, absl::Status status);

  // The first step whose failure was seen by Begin or EndSweep.
  struct Failure {
    Step step;
    absl::Status status;
  };
  const std::optional<Failure>& failure() const { return failure_; }

  // Waits for all steps issued so far but those that bring weights, which may be for the next
  // sweep. Hands out the times of all that have ended, in order, and forgets them.
  std::vector<StepTimes> EndSweep();

 private:
  // A step from issue until it is forgotten.
  struct Record {
    Step step;
    Fence begun;  // of a transfer: that it was started
    Fence done;
    bool is_transfer = false;
    StepTimes times;
  };

  // What a step waits for, kept until it has waited: records are forgotten as soon as they ended.
  struct Waits {
    std::vector<std::shared_ptr<Record>> records;
    std::vector<Fence*> fences;
  };

  Record& Add(const Step& step);
  Waits WaitsOf(const Step& step);
  Lane& LaneFor(const Step& step);
  absl::Status WaitForRecord(Record& record);
  void NoteFailure(const Record& record, const absl::Status& status);

  const Clock& clock_;
  std::optional<int64_t> piece_ended_us_;  // of the call that is being computed
  std::map<int64_t, std::shared_ptr<Record>> records_;  // by step id
  std::optional<Failure> failure_;
  // Reads of weights have a lane of their own: they are only begun there, others waited for. Last:
  // destroyed first, when all issued works have ended.
  std::map<std::pair<LaneId, bool>, std::unique_ptr<Lane>> lanes_;
};

}  // namespace nightshift
