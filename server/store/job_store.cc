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
    case JobState::kValidating:
    case JobState::kRunning:
    case JobState::kPaused:
    case JobState::kCancelling:
      return false;
  }
  return false;
}

bool IsRunnable(JobState state) {
  return state == JobState::kValidating || state == JobState::kQueued ||
         state == JobState::kRunning;
}

bool IsOpen(JobState state) {
  return IsRunnable(state) || state == JobState::kPaused;
}

}  // namespace nightshift
