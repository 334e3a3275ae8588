#include "tests/bench/timing.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>

namespace nightshift {
namespace {

// Rounds at most and at least; between, as many as fit.
constexpr int kRounds = 5;
constexpr int kLeastRounds = 2;
constexpr double kSeconds = 2.0;

double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double SecondsOfOneCall(const std::function<void()>& function, clockid_t clock,
                        double round_seconds) {
  const double start = Seconds(clock);
  double end = start;
  int64_t calls = 0;
  do {
    function();
    ++calls;
    end = Seconds(clock);
  } while (end - start < round_seconds);
  return (end - start) / static_cast<double>(calls);
}

}  // namespace

std::vector<double> TimeInTurns(const std::vector<std::function<void()>>& functions,
                                int num_threads, double round_seconds) {
  const clockid_t clock = num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<double> best(functions.size(), std::numeric_limits<double>::infinity());
  const double start = Seconds(CLOCK_MONOTONIC);
  for (int round = 0; round < kRounds; ++round) {
    if (round >= kLeastRounds && Seconds(CLOCK_MONOTONIC) - start > kSeconds) break;
    for (size_t i = 0; i < functions.size(); ++i) {
      best[i] = std::min(best[i], SecondsOfOneCall(functions[i], clock, round_seconds));
    }
  }
  return best;
}

}  // namespace nightshift
