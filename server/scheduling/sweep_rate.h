// SweepRate: tokens a second over the last sweeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace nightshift {

// One thread.
class SweepRate {
 public:
  // A sweep of so many tokens ended at `now_us`.
  void Add(int64_t now_us, int64_t tokens);
  // 0 until two sweeps have ended.
  double tokens_per_second() const;

 private:
  static constexpr size_t kSweeps = 32;

  struct Sweep {
    int64_t end_us = 0;
    int64_t tokens = 0;
  };
  std::deque<Sweep> sweeps_;
};

}  // namespace nightshift
