#include "client/private_daemon.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

#include "client/await.h"
#include "client/channel.h"
#include "client/daemon_binary.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Marks a folder as made by us, so that nothing else is ever deleted.
constexpr char kMarker[] = "private-run";
// A pack may be large: it is opened and checked before the daemon listens.
constexpr absl::Duration kStartLimit = absl::Minutes(10);
constexpr absl::Duration kStopLimit = absl::Minutes(3);
constexpr absl::Duration kPoll = absl::Milliseconds(50);
constexpr int64_t kMaxLogTailBytes = 64 << 20;

bool Always() {
  return true;
}

absl::Status PrepareStateDirectory(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !IsPrivateStateDirectory(path)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "use ", path, " for a private daemon: it exists and is not from an earlier run"));
  }
  std::filesystem::create_directories(path, error);
  if (error) {
    return absl::InternalError(absl::StrCat("make folder ", path, ": ", error.message()));
  }
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  const std::string marker = absl::StrCat(path, "/", kMarker);
  const FileDescriptor file(open(marker.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return file.get() >= 0 ? absl::OkStatus() : ErrnoStatus("make", marker);
}

// Waits while a daemon of an earlier run holds the state directory's lock. An interrupted wait or
// one that takes too long is left to the new daemon to report.
void WaitForEarlierDaemon(const std::string& state_directory,
                          const std::function<bool()>& keep_waiting) {
  const std::string path = state_directory + "/lock";
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  const absl::Time deadline = absl::Now() + kStopLimit;
  while (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) != 0 && absl::Now() < deadline &&
         Pause(kPoll, keep_waiting)) {
  }
}

// The last line that says something, from a log of lines.
std::string LastLine(const std::string& path) {
  const absl::StatusOr<std::string> log = ReadSmallFile(path, kMaxLogTailBytes);
  std::string last;
  if (log.ok()) {
    for (absl::string_view line : absl::StrSplit(*log, '\n')) {
      last = line.empty() ? last : std::string(line);
    }
  }
  return last.empty() ? "it wrote no log" : last;
}

// In the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeDaemon(pid_t parent, int log, const std::vector<char*>& arguments) {
  setpgid(0, 0);
  // A killed `nightshift` must not leave a daemon behind: it drains, its state stays.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) {
    std::_Exit(1);
  }
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments.front(), arguments.data());
  std::_Exit(127);
}

}  // namespace

std::string PrivateStateDirectoryOf(const std::string& output) {
  return output + ".nightshift";
}

bool IsPrivateStateDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(absl::StrCat(path, "/", kMarker), error);
}

PrivateDaemon::PrivateDaemon(PrivateDaemonOptions options, std::string socket_folder,
                             bool has_new_state)
    : options_(std::move(options)),
      socket_folder_(std::move(socket_folder)),
      address_(absl::StrCat("unix:", socket_folder_, "/nightshift.sock")),
      has_new_state_(has_new_state) {}

PrivateDaemon::~PrivateDaemon() {
  Stop();
  std::error_code ignored;
  std::filesystem::remove_all(socket_folder_, ignored);
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(
    const PrivateDaemonOptions& options, const std::function<bool()>& keep_waiting) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.pack, error)) {
    return absl::NotFoundError(absl::StrCat("open pack ", options.pack, ": no such folder"));
  }
  ASSIGN_OR_RETURN(const std::string binary, FindDaemonBinary());
  const bool has_new_state = !IsPrivateStateDirectory(options.state_directory);
  RETURN_IF_ERROR(PrepareStateDirectory(options.state_directory));
  WaitForEarlierDaemon(options.state_directory, keep_waiting);
  // The name of a socket has at most 107 bytes, which an output folder may pass: a short one apart.
  std::string socket_folder = "/tmp/nightshift-XXXXXX";
  if (mkdtemp(socket_folder.data()) == nullptr) {
    return ErrnoStatus("make folder", socket_folder);
  }
  std::unique_ptr<PrivateDaemon> daemon(
      new PrivateDaemon(options, std::move(socket_folder), has_new_state));
  RETURN_IF_ERROR(daemon->Launch(binary));
  RETURN_IF_ERROR(daemon->WaitUntilListening(keep_waiting));
  return daemon;
}

absl::Status PrivateDaemon::Launch(const std::string& binary) {
  const FileDescriptor log(
      open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (log.get() < 0) {
    return ErrnoStatus("open", log_path());
  }
  std::vector<std::string> words = {
      binary,    "--listen",   address_, "--state-dir", options_.state_directory,
      "--model", options_.pack};
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    BecomeDaemon(parent, log.get(), arguments);
  }
  return pid_ > 0 ? absl::OkStatus() : ErrnoStatus("start", binary);
}

absl::Status PrivateDaemon::WaitUntilListening(const std::function<bool()>& keep_waiting) {
  const absl::Time deadline = absl::Now() + kStartLimit;
  const std::string socket = socket_folder_ + "/nightshift.sock";
  while (absl::Now() < deadline) {
    RETURN_IF_ERROR(CheckAlive());
    if (access(socket.c_str(), F_OK) == 0) {
      auto channel = MakeChannel(address_);
      if (WaitUntilConnected(*channel, address_, /*uses_tls=*/false, absl::Seconds(10),
                             keep_waiting)
              .ok()) {
        return absl::OkStatus();
      }
    }
    if (!Pause(kPoll, keep_waiting)) {
      return absl::CancelledError("start a private daemon: interrupted");
    }
  }
  return absl::UnavailableError(absl::StrCat("start a private daemon: not ready after ",
                                             absl::FormatDuration(kStartLimit), ", its log is ",
                                             log_path()));
}

const absl::Status& PrivateDaemon::CheckAlive() {
  int status = 0;
  if (pid_ <= 0 || waitpid(pid_, &status, WNOHANG) == 0) {
    return death_;
  }
  pid_ = -1;
  const std::string how = WIFSIGNALED(status)
                              ? absl::StrCat("it was ended by signal ", WTERMSIG(status))
                              : absl::StrCat("it ended with exit code ", WEXITSTATUS(status));
  death_ = absl::UnavailableError(absl::StrCat("run a private daemon: ", how, "; its log ",
                                               log_path(), " ends: ", LastLine(log_path())));
  return death_;
}

void PrivateDaemon::Stop() {
  if (pid_ <= 0) {
    return;
  }
  kill(pid_, SIGTERM);
  const absl::Time deadline = absl::Now() + kStopLimit;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (absl::Now() >= deadline) {
      // Accepted work is durable: the next run continues it.
      kill(pid_, SIGKILL);
    }
    Pause(kPoll, Always);
  }
  pid_ = -1;
}

void PrivateDaemon::RemoveState() {
  std::error_code ignored;
  if (pid_ <= 0 && IsPrivateStateDirectory(options_.state_directory)) {
    std::filesystem::remove_all(options_.state_directory, ignored);
  }
}

}  // namespace nightshift
