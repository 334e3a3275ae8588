#include "server/store/store_actor.h"

#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

#include "server/store/sqlite_job_store.h"
#include "tests/support/memory_job_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Something that one thread opens and others wait for.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!open_) {
      changed_.Wait(mutex_);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Status AddJob(JobStore& store, const std::string& id) {
  JobRecord job;
  job.id = id;
  job.spec = std::string(1000, 'x');
  return store.InsertJob(job);
}

class StoreActorTest : public ::testing::Test {
 protected:
  void Start(StoreActorOptions options = {}) {
    auto store = std::make_unique<MemoryJobStore>(disk_);
    store_ = store.get();
    options.on_fatal = [this](const absl::Status& status) {
      MutexLock lock(mutex_);
      fatal_.push_back(status);
    };
    actor_ = std::make_unique<StoreActor>(std::move(store), std::move(options));
  }
  // Keeps the store thread inside a write until Release: later writes queue up behind it.
  void Hold() {
    ASSERT_OK(actor_->Write("",
                            [this](JobStore&) {
                              held_.Open();
                              release_.Wait();
                              return absl::OkStatus();
                            },
                            {}));
    held_.Wait();
  }
  void Release() { release_.Open(); }
  // Queues a write that adds this job; its answer is added to answers().
  absl::Status Add(const std::string& id) {
    return actor_->Write(
        id, [id](JobStore& store) { return AddJob(store, id); },
        [this, id](const absl::Status& status) {
          MutexLock lock(mutex_);
          answers_.push_back(absl::StrCat(id, " ", absl::StatusCodeToString(status.code())));
        });
  }
  // Waits until everything that was queued is answered.
  void Finish() {
    EXPECT_OK(actor_->WriteAndWait("", [](JobStore&) { return absl::OkStatus(); }));
  }
  std::vector<std::string> answers() {
    MutexLock lock(mutex_);
    return answers_;
  }
  std::vector<absl::Status> fatal() {
    MutexLock lock(mutex_);
    return fatal_;
  }
  bool Has(const std::string& id) { return disk_.jobs.count(id) != 0; }

  Gate held_;
  Gate release_;
  Mutex mutex_;
  std::vector<std::string> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> fatal_ ABSL_GUARDED_BY(mutex_);
  MemoryDisk disk_;
  MemoryJobStore* store_ = nullptr;
  std::unique_ptr<StoreActor> actor_;
};

TEST_F(StoreActorTest, CommitsQueuedWritesTogether) {
  Start();
  Hold();
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(Add(absl::StrCat("job-", i)));
  }
  Release();
  Finish();
  // The held write, and the ten with the final one behind or among them.
  EXPECT_LE(store_->num_commits(), 3);
  EXPECT_EQ(answers().size(), 10U);
}

TEST_F(StoreActorTest, BoundsTheWritesOfACommit) {
  Start({.max_writes_per_commit = 4, .on_fatal = {}});
  Hold();
  for (int i = 0; i < 8; ++i) {
    ASSERT_OK(Add(absl::StrCat("job-", i)));
  }
  Release();
  Finish();
  EXPECT_GE(store_->num_commits(), 3);
}

TEST_F(StoreActorTest, UndoesAFailingWriteAlone) {
  Start();
  Hold();
  ASSERT_OK(Add("a"));
  ASSERT_OK(actor_->Write(
      "b",
      [](JobStore& store) {
        CHECK(AddJob(store, "b").ok());
        return absl::InvalidArgumentError("not this one");
      },
      [this](const absl::Status& status) {
        MutexLock lock(mutex_);
        answers_.push_back(std::string(status.message()));
      }));
  ASSERT_OK(Add("c"));
  Release();
  Finish();
  EXPECT_THAT(answers(), ElementsAre("a OK", "not this one", "c OK"));
  EXPECT_TRUE(Has("a") && Has("c"));
  EXPECT_FALSE(Has("b"));
}

TEST_F(StoreActorTest, AnswersAfterTheCommitInOrderAndTellsEventsBefore) {
  Start();
  actor_->events().Subscribe("a", [&] {
    MutexLock lock(mutex_);
    answers_.push_back("event");
  });
  Hold();
  ASSERT_OK(Add("a"));
  ASSERT_OK(Add("a"));
  ASSERT_OK(Add("b"));
  Release();
  Finish();
  EXPECT_THAT(answers(), ElementsAre("event", "a OK", "a ALREADY_EXISTS", "b OK"));
}

TEST_F(StoreActorTest, RefusesWritesBeyondItsQueueAtOnce) {
  Start({.max_queued_writes = 2, .on_fatal = {}});
  Hold();
  ASSERT_OK(Add("a"));
  ASSERT_OK(Add("b"));
  EXPECT_THAT(Add("c"), StatusIs(absl::StatusCode::kResourceExhausted, "2 writes"));
  Release();
  Finish();
  EXPECT_THAT(answers(), ElementsAre("a OK", "b OK"));
}

TEST_F(StoreActorTest, WriteAndWaitWaitsForAPlaceInTheQueue) {
  Start({.max_queued_writes = 1, .on_fatal = {}});
  Hold();
  ASSERT_OK(Add("a"));
  std::thread patient([this] {
    EXPECT_OK(actor_->WriteAndWait("b", [](JobStore& store) { return AddJob(store, "b"); }));
  });
  Release();
  patient.join();
  EXPECT_TRUE(Has("a") && Has("b"));
}

TEST_F(StoreActorTest, FinishesWhatIsQueuedBeforeItStops) {
  Start();
  Hold();
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(Add(absl::StrCat("job-", i)));
  }
  Release();
  actor_.reset();
  EXPECT_EQ(answers().size(), 5U);
  EXPECT_EQ(disk_.jobs.size(), 5U);
}

TEST_F(StoreActorTest, AFullDiskFailsTheWriteThatDoesNotFitAndTheOthersGoOn) {
  Start();
  Hold();
  ASSERT_OK(Add("a"));
  ASSERT_OK(Add("b"));
  ASSERT_OK(Add("c"));
  // The held write's commit, the three together, then a alone and b alone.
  store_->FailNextCommits({absl::OkStatus(), absl::ResourceExhaustedError("disk full"),
                           absl::OkStatus(), absl::ResourceExhaustedError("disk full")});
  Release();
  Finish();
  EXPECT_THAT(answers(), ElementsAre("a OK", "b RESOURCE_EXHAUSTED", "c OK"));
  EXPECT_FALSE(Has("b"));
  EXPECT_THAT(fatal(), IsEmpty());
}

TEST_F(StoreActorTest, AWriteIsTriedOnceMoreWhenRoomWasMade) {
  StoreActorOptions options;
  int rooms = 1;
  options.on_full = [&rooms] { return rooms-- > 0; };
  Start(std::move(options));
  store_->FailNextCommits({absl::ResourceExhaustedError("disk full"), absl::OkStatus(),
                           absl::ResourceExhaustedError("disk full")});
  EXPECT_OK(actor_->WriteAndWait("a", [](JobStore& store) { return AddJob(store, "a"); }));
  EXPECT_THAT(actor_->WriteAndWait("b", [](JobStore& store) { return AddJob(store, "b"); }),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_TRUE(Has("a"));
  EXPECT_FALSE(Has("b"));
  EXPECT_THAT(fatal(), IsEmpty());
}

TEST_F(StoreActorTest, ARefusalOfTheOperationsOwnIsNoFullDisk) {
  StoreActorOptions options;
  int asked = 0;
  options.on_full = [&asked] { return ++asked > 0; };
  Start(std::move(options));
  EXPECT_THAT(actor_->WriteAndWait("a",
                                   [](JobStore&) {
                                     absl::Status refusal =
                                         absl::ResourceExhaustedError("the quota is 2");
                                     refusal.SetPayload("reason", absl::Cord("QUOTA_EXCEEDED"));
                                     return refusal;
                                   }),
              StatusIs(absl::StatusCode::kResourceExhausted, "the quota is 2"));
  EXPECT_EQ(asked, 0);
  EXPECT_OK(actor_->WriteAndWait("b", [](JobStore& store) { return AddJob(store, "b"); }));
}

TEST_F(StoreActorTest, AnIoErrorAtCommitIsFatalOnceAndNothingIsWrittenAfterIt) {
  Start();
  store_->FailNextCommits({absl::InternalError("sync: EIO")});
  EXPECT_THAT(actor_->WriteAndWait("a", [](JobStore& store) { return AddJob(store, "a"); }),
              StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_THAT(actor_->WriteAndWait("b", [](JobStore& store) { return AddJob(store, "b"); }),
              StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_EQ(fatal().size(), 1U);
  EXPECT_FALSE(Has("a") || Has("b"));
}

TEST_F(StoreActorTest, ReadsRunBesideAWriteAndAreBounded) {
  Start({.max_queued_reads = 1, .num_readers = 1, .on_fatal = {}});
  Gate reading;
  Gate read;
  ASSERT_OK(actor_->Read([&](JobStore&) {
    reading.Open();
    read.Wait();
  }));
  reading.Wait();
  bool ran = false;
  ASSERT_OK(actor_->Read([&](JobStore&) { ran = true; }));
  EXPECT_THAT(actor_->Read([](JobStore&) {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "1 reads"));
  Finish();
  read.Open();
  actor_.reset();
  EXPECT_TRUE(ran);
}

// SQLite gives a whole transaction up when it cannot grow.
TEST(StoreActorSqliteTest, AFullDatabaseRefusesWhatDoesNotFitAndKeepsTheRest) {
  const TemporaryFolder folder;
  auto store = SqliteJobStore::Open(
      {.path = folder.path() + "/store.sqlite", .max_database_bytes = 160 << 10});
  ASSERT_OK(store);
  StoreActor actor(*std::move(store), {.on_fatal = [](const absl::Status&) { FAIL(); }});
  const auto add = [&](const std::string& id, size_t bytes) {
    return actor.WriteAndWait(id, [=](JobStore& target) {
      JobRecord job;
      job.id = id;
      job.spec = std::string(bytes, 'x');
      return target.InsertJob(job);
    });
  };
  EXPECT_OK(add("small", 100));
  EXPECT_THAT(add("large", 1 << 20), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_OK(add("other", 100));
  EXPECT_OK(actor.WriteAndWait("", [](JobStore& target) {
    return target.FindSubmission("", "").ok() ? absl::InternalError("") : absl::OkStatus();
  }));
}

TEST(StoreActorSqliteTest, OneWriteTooManyDoesNotHarmItsNeighboursInTheGroup) {
  const TemporaryFolder folder;
  auto store = SqliteJobStore::Open(
      {.path = folder.path() + "/store.sqlite", .max_database_bytes = 160 << 10});
  ASSERT_OK(store);
  StoreActor actor(*std::move(store), {.on_fatal = [](const absl::Status&) { FAIL(); }});
  Gate held;
  Gate release;
  ASSERT_OK(actor.Write("",
                        [&](JobStore&) {
                          held.Open();
                          release.Wait();
                          return absl::OkStatus();
                        },
                        {}));
  held.Wait();
  std::vector<absl::StatusCode> codes;
  for (const size_t bytes : {size_t{100}, size_t{1} << 20U, size_t{100}}) {
    ASSERT_OK(actor.Write(
        "",
        [bytes](JobStore& target) {
          JobRecord job;
          job.id = absl::StrCat("job-", bytes, "-", target.ActiveJobs()->size());
          job.spec = std::string(bytes, 'x');
          absl::Status status = target.InsertJob(job);
          return status.ok() ? target.FinishReceiving(job.id, 0) : status;
        },
        [&codes](const absl::Status& status) { codes.push_back(status.code()); }));
  }
  release.Open();
  EXPECT_OK(actor.WriteAndWait("", [](JobStore&) { return absl::OkStatus(); }));
  EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kResourceExhausted,
                                 absl::StatusCode::kAlreadyExists));
}

}  // namespace
}  // namespace nightshift
