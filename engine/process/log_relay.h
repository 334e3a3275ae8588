// LogRelay: passes what another process writes to its stderr on to ours, line by line, and keeps
// the last lines for a report of its end.
#pragma once

#include <deque>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/mutex.h"

namespace nightshift {

// Thread-safe.
class LogRelay {
 public:
  // `source`: the reading end of a pipe. Begins at once.
  explicit LogRelay(FileDescriptor source);
  // Waits until every writing end of the pipe is closed.
  ~LogRelay();
  LogRelay(const LogRelay&) = delete;
  LogRelay& operator=(const LogRelay&) = delete;

  // The last lines, at most 5 of 300 bytes each, with " | " between them. To be called when every
  // writing end is closed: waits for that.
  std::string TakeTail();

 private:
  void Run();
  void PassOn(absl::string_view line);

  FileDescriptor source_;
  Mutex mutex_;
  std::deque<std::string> tail_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace nightshift
