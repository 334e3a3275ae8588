#include "engine/process/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/memory_cgroup.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Ending takes as long as the system needs to take its memory back.
constexpr int kPatienceMs = 10'000;

// A copy that no number of a child's own descriptors can collide with.
absl::StatusOr<FileDescriptor> AboveChildFds(int fd) {
  FileDescriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, kChildFd + 1));
  if (copy.get() < 0) {
    return ErrnoStatus("copy", "a descriptor for a child");
  }
  return copy;
}

// What the child does between its birth and its executable.
class SpawnActions {
 public:
  SpawnActions(int fd, int log) {
    CHECK_EQ(posix_spawn_file_actions_init(&actions_), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions_, log, STDERR_FILENO), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions_, fd, kChildFd), 0);
    // Ours are close-on-exec; those that we inherited may not be.
    CHECK_EQ(posix_spawn_file_actions_addclosefrom_np(&actions_, kChildFd + 1), 0);
  }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// True when the process ended within `patience_ms`.
bool AwaitEnd(pid_t pid, int patience_ms) {
  // glibc 2.36 declares pidfd_open without extern "C".
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd event = {.fd = process.get(), .events = POLLIN, .revents = 0};
  int count = 0;
  do {
    count = process.get() < 0 ? 0 : poll(&event, 1, patience_ms);
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

}  // namespace

std::string ChildEnd::ToString() const {
  std::string text =
      signal == 0 ? absl::StrCat("engine process ", pid, " ended with exit code ", exit_code)
                  : absl::StrCat("engine process ", pid, " was ended by signal ", signal, " (",
                                 strsignal(signal), ")");
  if (oom_kills > 0) {
    absl::StrAppend(&text, "; out of memory: the kernel killed ", oom_kills,
                    " of this memory cgroup's processes meanwhile; raise the limit of the group or "
                    "lower --memory-budget");
  }
  if (!last_lines.empty()) {
    absl::StrAppend(&text, "; its last lines: ", last_lines);
  }
  return text;
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(
    std::vector<std::string> arguments, const FileDescriptor& fd) {
  std::array<int, 2> log_ends{};
  if (pipe2(log_ends.data(), O_CLOEXEC) != 0) {
    return ErrnoStatus("make", "a pipe");
  }
  FileDescriptor log_source(log_ends[0]);
  const FileDescriptor log_target(log_ends[1]);
  ASSIGN_OR_RETURN(const FileDescriptor child_log, AboveChildFds(log_target.get()));
  ASSIGN_OR_RETURN(const FileDescriptor child_fd, AboveChildFds(fd.get()));
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  const SpawnActions actions(child_fd.get(), child_log.get());
  const int64_t oom_kills = CountOomKills().value_or(0);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", actions.get(), nullptr, argv.data(), environ);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("start engine process from /proc/self/exe: ", std::strerror(error)));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, std::move(log_source), oom_kills));
}

ChildProcess::ChildProcess(pid_t pid, FileDescriptor log, int64_t oom_kills)
    : pid_(pid), oom_kills_before_(oom_kills), log_(std::move(log)) {}

ChildProcess::~ChildProcess() {
  if (!end_.has_value()) {
    kill(pid_, SIGKILL);
    WaitForEnd();
  }
}

ChildEnd ChildProcess::WaitForEnd() {
  if (end_.has_value()) {
    return *end_;
  }
  if (!AwaitEnd(pid_, kPatienceMs)) {
    kill(pid_, SIGKILL);
  }
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(pid_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  CHECK_EQ(waited, pid_);
  end_ = ChildEnd{.pid = pid_,
                  .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                  .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                  .oom_kills = CountOomKills().value_or(oom_kills_before_) - oom_kills_before_,
                  .last_lines = log_.TakeTail()};
  return *end_;
}

}  // namespace nightshift
