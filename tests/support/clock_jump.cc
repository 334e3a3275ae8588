// A wall clock that is set forward and back, for tests of the daemon: loaded into it by LD_PRELOAD.
// The file that $CLOCK_JUMP names holds a 64-bit number, by how many seconds the wall clock is ahead
// of the machine's; who writes another number there sets the clock. Other clocks are left alone.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

int64_t AheadSeconds() {
  using Number = const std::atomic<int64_t>;
  static Number* const ahead = []() -> Number* {
    const char* const path = std::getenv("CLOCK_JUMP");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    void* const mapped =
        fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<Number*>(mapped);
  }();
  return ahead == nullptr ? 0 : ahead->load();
}

bool IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

}  // namespace

// As in time.h and sys/time.h.
extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && IsWallClock(clock)) {
    time->tv_sec += AheadSeconds();
  }
  return result;
}

int gettimeofday(timeval* __restrict time, void* __restrict /*zone*/) noexcept {
  timespec now = {};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return result;
}

time_t time(time_t* target) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (target != nullptr) {
    *target = now.tv_sec;
  }
  return now.tv_sec;
}

}  // extern "C"
