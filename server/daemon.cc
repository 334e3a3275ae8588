#include "server/daemon.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/clock.h"
#include "kernels/base/log.h"

namespace nightshift {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;

// SIGUSR1 is ours: a drain has ended.
constexpr int kWaitedSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

sigset_t WaitedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kWaitedSignals) {
    sigaddset(&signals, signal);
  }
  return signals;
}

// The thread that waits for signals; set before any other is started by us.
pthread_t waiting_thread;

// A library may have started a thread before main, which blocks nothing (OpenBLAS does, which CLP
// brings). A signal that such a thread is given goes on to the one that waits.
void PassOn(int signal) {
  pthread_kill(waiting_thread, signal);
}

// The next waited signal, or 0 when `seconds` pass first; negative seconds: for ever.
int WaitForSignal(int64_t seconds) {
  const sigset_t signals = WaitedSignals();
  const timespec timeout = {.tv_sec = seconds, .tv_nsec = 0};
  int signal = -1;
  do {
    signal =
        seconds < 0 ? sigwaitinfo(&signals, nullptr) : sigtimedwait(&signals, nullptr, &timeout);
  } while (signal < 0 && errno == EINTR);
  return signal < 0 ? 0 : signal;
}

absl::Status WriteReadyFile(const std::string& path, const std::vector<std::string>& addresses) {
  if (path.empty()) {
    return absl::OkStatus();
  }
  // Written aside, so that who waits for the file never sees half of it.
  const std::string aside = path + ".part";
  {
    std::ofstream file(aside);
    file << absl::StrJoin(addresses, "\n") << "\n";
    if (!file.flush()) {
      return absl::FailedPreconditionError(absl::StrCat("write ready file ", aside));
    }
  }
  return std::rename(aside.c_str(), path.c_str()) == 0
             ? absl::OkStatus()
             : absl::FailedPreconditionError(absl::StrCat("rename ready file to ", path));
}

void Announce(const Server& server) {
  for (const std::string& address : server.addresses()) {
    LOG(INFO) << "listening address=" << address;
  }
  sd_notify(0, "READY=1\nSTATUS=accepting jobs");
}

// Ends the server. The drain has a thread of its own, so that signals and the timeout are heard.
void DrainWithin(Server& server, int64_t timeout_s) {
  sd_notify(0, "STOPPING=1\nSTATUS=draining");
  std::thread drain([&server] {
    server.Drain();
    ::kill(::getpid(), SIGUSR1);
  });
  const RealClock clock;  // a wall clock that jumps is no reason to kill
  const int64_t end_s = clock.MonotonicMicros() / kMicrosPerSecond + timeout_s;
  while (true) {
    const int64_t left = end_s - clock.MonotonicMicros() / kMicrosPerSecond;
    const int signal = left > 0 ? WaitForSignal(left) : 0;
    if (signal == SIGUSR1) {
      break;
    }
    if (signal == 0) {
      LOG(ERROR) << "drain_timeout timeout_s=" << timeout_s
                 << " action=kill lost=tokens_of_requests_in_flight";
      std::raise(SIGKILL);
    }
    if (signal == SIGHUP) {
      continue;
    }
    LOG(INFO) << "drain_hurried signal=" << signal;
    server.Hurry();
  }
  drain.join();
}

// Prompts belong into no core file (the limit alone does not hold for one that is piped), and not
// into gRPC's trace of all that goes over the wire.
void KeepSecrets() {
  const rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0);
  ::unsetenv("GRPC_TRACE");
}

// The usual soft limit of 1024 is fewer connections than we allow.
void RaiseDescriptorLimit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kEnough) {
    files.rlim_cur = std::min(files.rlim_max, kEnough);
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

}  // namespace

void PrepareProcess() {
  KeepSecrets();
  RaiseDescriptorLimit();
  // Arenas for a few threads, large blocks mapped by themselves: what is freed goes back to the
  // system, so that the process stays near its budget.
  constexpr int kMaxArenas = 4;
  constexpr int kMapAboveBytes = 256 << 10;
  mallopt(M_ARENA_MAX, kMaxArenas);
  mallopt(M_MMAP_THRESHOLD, kMapAboveBytes);
  mallopt(M_TRIM_THRESHOLD, 4 * kMapAboveBytes);
  const sigset_t signals = WaitedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  waiting_thread = pthread_self();
  for (const int signal : kWaitedSignals) {
    std::signal(signal, PassOn);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

void EndOnSignals() {
  for (const int signal : kWaitedSignals) {
    std::signal(signal, SIG_DFL);
  }
  const sigset_t signals = WaitedSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

ExitCode RunDaemon(const CommandLine& line, EngineFactory engine_factory) {
  LOG(INFO) << "starting " << absl::StrJoin(line.effective, " ");
  std::atomic<bool> fatal{false};
  ServerParts parts;
  parts.engine_factory = std::move(engine_factory);
  parts.on_fatal = [&fatal](const absl::Status& status) {
    LOG(ERROR) << "store_failed action=exit status=" << status.ToString();
    fatal.store(true);
    ::kill(::getpid(), SIGTERM);
  };
  auto server = Server::Start(line.options, std::move(parts));
  if (!server.ok()) {
    LOG(ERROR) << "start_refused status=" << server.status().ToString();
    const bool is_config = absl::IsFailedPrecondition(server.status()) ||
                           absl::IsInvalidArgument(server.status()) ||
                           absl::IsNotFound(server.status());
    return is_config ? ExitCode::kConfig : ExitCode::kOther;
  }
  if (const absl::Status written = WriteReadyFile(line.options.ready_file, (*server)->addresses());
      !written.ok()) {
    LOG(ERROR) << "start_refused status=" << written.ToString();
    return ExitCode::kConfig;
  }
  Announce(**server);
  int signal = WaitForSignal(-1);
  for (; signal == SIGHUP; signal = WaitForSignal(-1)) {
    (*server)->Reload();
  }
  LOG(INFO) << "draining signal=" << signal;
  DrainWithin(**server, line.options.drain_timeout_s);
  server->reset();
  LOG(INFO) << "stopped";
  return fatal.load() ? ExitCode::kOther : ExitCode::kOk;
}

}  // namespace nightshift
