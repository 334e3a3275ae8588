// PrivateDaemon: a `nightshiftd` of one `nightshift run`, for machines where none is running.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

struct PrivateDaemonOptions {
  std::string pack;             // path
  std::string state_directory;  // kept between runs, so that a rerun resumes; made when missing
};

// The state directory that belongs to an output file: OUTPUT.nightshift beside it.
std::string PrivateStateDirectoryOf(const std::string& output);
// True when an unfinished private run left its state there.
bool IsPrivateStateDirectory(const std::string& path);

// Owns the process: it is drained when this ends, and the kernel ends it when `nightshift` is
// killed. It has its own process group, so that Ctrl-C reaches `nightshift` only. One thread.
class PrivateDaemon {
 public:
  // Starts it and waits until it accepts connections. A daemon of an earlier run that still drains
  // is waited for. Its log is STATE_DIRECTORY/nightshiftd.log.
  // Errors: NOT_FOUND (pack), FAILED_PRECONDITION (no executable, the folder is not ours),
  // UNAVAILABLE (it ended; with the end of its log), CANCELLED by keep_waiting.
  static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(
      const PrivateDaemonOptions& options, const std::function<bool()>& keep_waiting);
  // As Stop.
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  // Asks it to drain and waits; its state stays, unless RemoveState is called after.
  void Stop();
  // Deletes the state directory: the results are fetched. Only after Stop.
  void RemoveState();

  // UNAVAILABLE, with the end of its log, when the process has ended by itself.
  const absl::Status& CheckAlive();
  const std::string& address() const { return address_; }
  // True when this made the state directory.
  bool has_new_state() const { return has_new_state_; }

 private:
  PrivateDaemon(PrivateDaemonOptions options, std::string socket_folder, bool has_new_state);
  absl::Status Launch(const std::string& binary);
  absl::Status WaitUntilListening(const std::function<bool()>& keep_waiting);
  std::string log_path() const { return options_.state_directory + "/nightshiftd.log"; }

  const PrivateDaemonOptions options_;
  const std::string socket_folder_;
  const std::string address_;
  const bool has_new_state_;
  pid_t pid_ = -1;
  absl::Status death_;  // not OK once the process was found to have ended
};

}  // namespace nightshift
