#include "server/store/job_store.h"

namespace nightshift {

bool IsTerminal(JobState state) {
  switch (state) {
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kCancelled:
    case JobState::kExpired:
      return true;
    case JobState::kReceiving:
    case JobState::kQueued:
    case JobState::kRunning:
    case JobState::kPaused:
    case JobState::kCancelling:
      return false;
  }
  return false;
}

}  // namespace nightshift
