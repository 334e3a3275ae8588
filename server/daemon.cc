#include "server/daemon.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
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
#include "kernels/base/log_format.h"
#include "server/rpc/library_logs.h"

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

// The next waited signal, or 0 when the time passes first; negative: for ever.
int WaitForSignal(int64_t timeout_us) {
  const sigset_t signals = WaitedSignals();
  const timespec timeout = {.tv_sec = timeout_us / kMicrosPerSecond,
                            .tv_nsec = timeout_us % kMicrosPerSecond * 1000};
  int signal = -1;
  do {
    signal =
        timeout_us < 0 ? sigwaitinfo(&signals, nullptr) : sigtimedwait(&signals, nullptr, &timeout);
  } while (signal < 0 && errno == EINTR);
  return signal < 0 ? 0 : signal;
}

// Tells systemd that the daemon lives, where its unit has a watchdog. The thread that waits for
// signals does so itself, so it is told only while that thread, the store's and the listener work.
class Watchdog {
 public:
  explicit Watchdog(Server& server) : server_(server) {
    uint64_t limit_us = 0;
    if (sd_watchdog_enabled(0, &limit_us) > 0) {
      // Two signs may be late before systemd acts on the third.
      interval_us_ = std::max<int64_t>(1, static_cast<int64_t>(limit_us) / 3);
    }
  }

  // As the function above.
  int WaitForSignal(int64_t timeout_us) {
    if (interval_us_ < 0) {
      return nightshift::WaitForSignal(timeout_us);
    }
    const int64_t end_us = timeout_us < 0 ? INT64_MAX : clock_.MonotonicMicros() + timeout_us;
    int64_t left_us = end_us;
    while (left_us > 0) {
      if (clock_.MonotonicMicros() >= next_us_) {
        Beat();
      }
      const int64_t now_us = clock_.MonotonicMicros();
      left_us = end_us - now_us;
      const int64_t wait_us = std::min(left_us, std::max<int64_t>(0, next_us_ - now_us));
      if (const int signal = nightshift::WaitForSignal(std::max<int64_t>(0, wait_us)); signal != 0) {
        return signal;
      }
    }
    return 0;
  }

 private:
  void Beat() {
    next_us_ = clock_.MonotonicMicros() + interval_us_;
    const absl::Status alive = server_.CheckAlive(interval_us_ / 2);
    if (alive.ok()) {
      sd_notify(0, "WATCHDOG=1");
    } else {
      LOG(ERROR) << "watchdog_withheld error=\"" << alive.message()
                 << "\" action=\"systemd starts the daemon anew unless this passes\"";
    }
  }

  Server& server_;
  RealClock clock_;
  int64_t interval_us_ = -1;  // no watchdog
  int64_t next_us_ = 0;       // monotonic clock
};

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
  if (!server.http_url().empty()) {
    LOG(INFO) << "listening address=" << server.http_url();
  }
  sd_notify(0, "READY=1");
}

// For `systemctl status`.
void TellDrained(bool drained) {
  sd_notify(0, drained ? "STATUS=drained: accepts and runs nothing until nightshift server drain --undo"
                       : "STATUS=accepting jobs");
}

// Ends the server. The drain has a thread of its own, so that signals and the timeout are heard.
void DrainWithin(Server& server, Watchdog& watchdog, int64_t timeout_s) {
  sd_notify(0, "STOPPING=1\nSTATUS=stopping");
  std::thread drain([&server] {
    server.Drain();
    ::kill(::getpid(), SIGUSR1);
  });
  const RealClock clock;  // a wall clock that jumps is no reason to kill
  const int64_t end_us = clock.MonotonicMicros() + timeout_s * kMicrosPerSecond;
  while (true) {
    const int64_t left_us = end_us - clock.MonotonicMicros();
    const int signal = left_us > 0 ? watchdog.WaitForSignal(left_us) : 0;
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
  SetLogFormat(line.options.log_format);
  RouteLibraryLogs();
  LOG(INFO) << "starting " << absl::StrJoin(line.effective, " ");
  std::atomic<bool> fatal{false};
  ServerParts parts;
  parts.engine_factory = std::move(engine_factory);
  parts.on_fatal = [&fatal](const absl::Status& status) {
    LOG(ERROR) << "store_failed action=exit status=" << status.ToString();
    fatal.store(true);
    ::kill(::getpid(), SIGTERM);
  };
  parts.on_drain_set = TellDrained;
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
  Watchdog watchdog(**server);
  int signal = watchdog.WaitForSignal(-1);
  for (; signal == SIGHUP; signal = watchdog.WaitForSignal(-1)) {
    (*server)->Reload();
  }
  LOG(INFO) << "draining signal=" << signal;
  DrainWithin(**server, watchdog, line.options.drain_timeout_s);
  server->reset();
  LOG(INFO) << "stopped";
  return fatal.load() ? ExitCode::kOther : ExitCode::kOk;
}

}  // namespace nightshift
