#include "kernels/base/worker_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/fence.h"
#include "kernels/base/mutex.h"

namespace nightshift {
namespace {

TEST(WorkerPoolTest, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.ParallelFor(tasks, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
      for (const auto& count : runs) {
        EXPECT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(WorkerPoolTest, ReturnsOnlyWhenAllTasksHaveEnded) {
  WorkerPool pool(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> results(9);  // plain memory: a task that ends late is a race
    pool.ParallelFor(9, [&](int64_t task, int) { results[static_cast<size_t>(task)] = task + 1; });
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_EQ(results[i], static_cast<int64_t>(i) + 1);
    }
  }
}

TEST(WorkerPoolTest, GivesEachThreadItsOwnWorkerNumber) {
  WorkerPool pool(4);
  EXPECT_EQ(pool.num_threads(), 4);
  std::vector<std::thread::id> owners(4);  // each slot written by one thread only
  pool.ParallelFor(200, [&](int64_t, int worker) {
    ASSERT_GE(worker, 0);
    ASSERT_LT(worker, 4);
    std::thread::id& owner = owners[static_cast<size_t>(worker)];
    if (owner == std::thread::id()) owner = std::this_thread::get_id();
    ASSERT_EQ(owner, std::this_thread::get_id());
  });
}

TEST(WorkerPoolTest, WorksOnSeveralTasksAtTheSameTime) {
  WorkerPool pool(3);
  Mutex mutex;
  CondVar changed;
  int arrived = 0;
  // Each task waits for all three: with fewer threads at work this would never end.
  pool.ParallelFor(3, [&](int64_t, int) {
    MutexLock lock(mutex);
    ++arrived;
    changed.NotifyAll();
    while (arrived < 3) {
      changed.Wait(mutex);
    }
  });
  EXPECT_EQ(arrived, 3);
}

TEST(WorkerPoolTest, RunsOnTheCallersThreadWithOneThread) {
  WorkerPool pool(1);
  std::vector<int64_t> order;
  pool.ParallelFor(4, [&](int64_t task, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(WorkerPoolTest, RunsTheLoopsOfSeveralCallersOneAtATime) {
  for (const int threads : {1, 3}) {
    WorkerPool pool(threads);
    std::vector<int64_t> sums(8);  // plain memory: loops that overlap are a race
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 200; ++round) {
          pool.ParallelFor(8, [&](int64_t task, int) { ++sums[static_cast<size_t>(task)]; });
        }
      });
    }
    for (std::thread& caller : callers) {
      caller.join();
    }
    EXPECT_EQ(sums, std::vector<int64_t>(8, 600));
  }
}

TEST(WorkerPoolTest, ACallerWithManyLoopsLetsAnotherHaveItsTurn) {
  WorkerPool pool(2);
  std::atomic<bool> greedy_runs{false};
  std::atomic<bool> other_had_its_turn{false};
  // Ends only once the other caller has had a loop between two of these.
  std::thread greedy([&] {
    while (!other_had_its_turn) {
      pool.ParallelFor(2, [&](int64_t, int) { greedy_runs = true; });
    }
  });
  while (!greedy_runs) {
    std::this_thread::yield();
  }
  pool.ParallelFor(2, [&](int64_t, int) { other_had_its_turn = true; });
  greedy.join();
}

TEST(WorkerPoolTest, ASingleTaskWaitsForNobodysTurn) {
  WorkerPool pool(2);
  Fence loop_runs;
  Fence single_ended;
  std::thread other([&] {
    pool.ParallelFor(2, [&](int64_t task, int) {
      if (task == 0) {
        loop_runs.Complete(absl::OkStatus());
        EXPECT_TRUE(single_ended.Wait().ok());
      }
    });
  });
  EXPECT_TRUE(loop_runs.Wait().ok());
  pool.ParallelFor(1, [&](int64_t, int) { single_ended.Complete(absl::OkStatus()); });
  other.join();
}

TEST(WorkerPoolTest, RefusesZeroThreads) {
  EXPECT_DEATH(WorkerPool(0), "num_threads");
}

}  // namespace
}  // namespace nightshift
