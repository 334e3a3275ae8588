#include "server/store/job_events.h"

#include <thread>

#include <gtest/gtest.h>

#include "kernels/base/mutex.h"

namespace nightshift {
namespace {

TEST(JobEventsTest, TellsSubscribersOfTheJobAndOfAnyJob) {
  JobEvents events;
  int of_a = 0;
  int of_any = 0;
  events.Subscribe("a", [&] { ++of_a; });
  events.Subscribe("", [&] { ++of_any; });
  events.Notify("a");
  events.Notify("b");
  EXPECT_EQ(of_a, 1);
  EXPECT_EQ(of_any, 2);
}

TEST(JobEventsTest, TellsNobodyTwice) {
  JobEvents events;
  int of_any = 0;
  events.Subscribe("", [&] { ++of_any; });
  events.Notify("");
  EXPECT_EQ(of_any, 1);
}

TEST(JobEventsTest, EndsWithUnsubscribe) {
  JobEvents events;
  int calls = 0;
  const int64_t id = events.Subscribe("a", [&] { ++calls; });
  const int64_t other = events.Subscribe("a", [&] { calls += 10; });
  events.Unsubscribe(id);
  events.Unsubscribe(id);
  events.Notify("a");
  EXPECT_EQ(calls, 10);
  events.Unsubscribe(other);
}

TEST(JobEventsTest, ASubscriberMayLeaveFromItsOwnCall) {
  JobEvents events;
  int calls = 0;
  int64_t id = 0;
  id = events.Subscribe("a", [&] {
    ++calls;
    events.Unsubscribe(id);
  });
  events.Notify("a");
  events.Notify("a");
  EXPECT_EQ(calls, 1);
}

TEST(JobEventsTest, ASubscriberMayBringAnother) {
  JobEvents events;
  int calls = 0;
  events.Subscribe("a", [&] {
    if (++calls == 1) {
      events.Subscribe("a", [&] { calls += 10; });
    }
  });
  events.Notify("a");
  EXPECT_EQ(calls, 1);
  events.Notify("a");
  EXPECT_EQ(calls, 12);
}

TEST(JobEventsTest, UnsubscribeWaitsForACallThatRuns) {
  JobEvents events;
  Mutex mutex;
  CondVar changed;
  bool entered = false;
  bool released = false;
  bool ended = false;
  const int64_t id = events.Subscribe("a", [&] {
    MutexLock lock(mutex);
    entered = true;
    changed.NotifyAll();
    while (!released) {
      changed.Wait(mutex);
    }
    ended = true;
  });
  std::thread notifier([&] { events.Notify("a"); });
  {
    MutexLock lock(mutex);
    while (!entered) {
      changed.Wait(mutex);
    }
  }
  std::thread releaser([&] {
    MutexLock lock(mutex);
    released = true;
    changed.NotifyAll();
  });
  events.Unsubscribe(id);
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(ended);
  }
  notifier.join();
  releaser.join();
}

}  // namespace
}  // namespace nightshift
