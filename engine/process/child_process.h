// ChildProcess: this executable once more, as a child that is found by its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"

#include "engine/process/log_relay.h"
#include "kernels/base/file_descriptor.h"

namespace nightshift {

// The descriptor that a child finds beside its standard streams.
inline constexpr int kChildFd = 3;

// How a child ended.
struct ChildEnd {
  pid_t pid = 0;
  int signal = 0;  // that ended it; 0: it ended by itself with exit_code
  int exit_code = 0;
  int64_t oom_kills = 0;  // in the memory cgroup while it lived
  std::string last_lines;  // of its stderr

  // "engine process 17 was ended by signal 9 (Killed), ..."; with what to do.
  std::string ToString() const;
};

// One thread. Its stderr goes to ours.
class ChildProcess {
 public:
  // Starts /proc/self/exe, which is the same file also when another has taken its name, with these
  // arguments, the first of which is a name for people, and `fd` as kChildFd. Of our descriptors it
  // gets no others but the standard streams. Runs no handlers of fork, so threads may run.
  // Errors: UNAVAILABLE when the system has no room for another process, with its word.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(std::vector<std::string> arguments,
                                                             const FileDescriptor& fd);
  // Kills it if it has not ended, and waits for that.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until the child, which was told to end, has ended. After some seconds it is killed.
  ChildEnd WaitForEnd();

 private:
  ChildProcess(pid_t pid, FileDescriptor log, int64_t oom_kills);

  const pid_t pid_;
  const int64_t oom_kills_before_;
  std::optional<ChildEnd> end_;
  LogRelay log_;
};

}  // namespace nightshift
