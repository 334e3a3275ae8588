#include "kernels/base/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

// A counter that threads add to and one waits for.
class Gate {
 public:
  void Add() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  void WaitUntil(int count) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (count_ < count) {
      changed_.Wait(mutex_);
    }
  }
  // False when `timeout` passed before the count was reached.
  bool WaitUntil(int count, std::chrono::microseconds timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (count_ < count) {
      if (!changed_.WaitFor(mutex_, timeout)) return count_ >= count;
    }
    return true;
  }
  int count() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, LosesNoIncrementOfSeveralThreads) {
  Gate gate;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&gate] {
      for (int j = 0; j < 1000; ++j) {
        gate.Add();
      }
    });
  }
  gate.WaitUntil(4000);
  EXPECT_EQ(gate.count(), 4000);
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(CondVarTest, WaitForReturnsFalseWhenNothingCame) {
  Gate gate;
  EXPECT_FALSE(gate.WaitUntil(1, std::chrono::microseconds(500)));
  EXPECT_EQ(gate.count(), 0);  // the mutex was given back
}

TEST(CondVarTest, WaitForReturnsTrueWhenNotified) {
  Gate gate;
  std::thread other([&gate] { gate.Add(); });
  EXPECT_TRUE(gate.WaitUntil(1, std::chrono::minutes(5)));
  other.join();
}

}  // namespace
}  // namespace nightshift
