// ProgressDisplay: shows a job while a command waits for it.
#pragma once

#include <string>

#include "absl/time/time.h"

#include "client/progress.h"
#include "client/session.h"

namespace nightshift {

// Asks the daemon for the job once a second on a terminal, once in 30 s elsewhere, never when
// quiet.
class ProgressDisplay {
 public:
  ProgressDisplay(Session& session, std::string job);
  // Cheap unless something is due. Uses the client.
  void Tick();
  // Shows a job that the caller has at hand.
  void Show(const v1::Job& job);

 private:
  Session& session_;
  const std::string job_;
  const absl::Duration interval_;
  absl::Time next_;
  ProgressEstimate estimate_;
};

}  // namespace nightshift
