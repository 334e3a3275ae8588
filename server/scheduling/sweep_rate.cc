#include "server/scheduling/sweep_rate.h"

namespace nightshift {

void SweepRate::Add(int64_t now_us, int64_t tokens) {
  sweeps_.push_back({.end_us = now_us, .tokens = tokens});
  if (sweeps_.size() > kSweeps) {
    sweeps_.pop_front();
  }
}

double SweepRate::tokens_per_second() const {
  if (sweeps_.size() < 2 || sweeps_.back().end_us <= sweeps_.front().end_us) {
    return 0;
  }
  // The first sweep only opens the interval.
  int64_t tokens = 0;
  for (size_t i = 1; i < sweeps_.size(); ++i) {
    tokens += sweeps_[i].tokens;
  }
  const int64_t elapsed_us = sweeps_.back().end_us - sweeps_.front().end_us;
  return static_cast<double>(tokens) * 1e6 / static_cast<double>(elapsed_us);
}

}  // namespace nightshift
