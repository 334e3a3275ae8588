#include "server/store/janitor.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/memory_job_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

// A job that has ended and one that has not, each with an input file.
class JanitorTest : public ::testing::Test {
 protected:
  JanitorTest() : actor_(std::make_unique<MemoryJobStore>(disk_), {.on_fatal = {}}) {
    std::filesystem::create_directories(folder_.path() + "/jobs");
    for (const char* id : {"ended", "open"}) {
      JobRecord job;
      job.id = id;
      job.input_file = std::string("jobs/") + id;
      std::ofstream(folder_.path() + "/" + job.input_file) << "input";
      EXPECT_OK(actor_.WriteAndWait("", [&](JobStore& store) -> absl::Status {
        CHECK(store.InsertJob(job).ok());
        CHECK(store.InsertRows(id, {{.index = 0, .error_body = {}}}).ok());
        return store.FinishReceiving(id, 0);
      }));
    }
    EXPECT_OK(actor_.WriteAndWait("", [&](JobStore& store) {
      return store.Publish({{.job_id = "ended", .index = 0, .body = "result"}}, clock_.WallMicros())
          .status();
    }));
  }

  // Runs a janitor until it has looked at everything once.
  void Clean() {
    Mutex mutex;
    CondVar changed;
    bool done = false;
    JanitorOptions options;
    options.state_directory = folder_.path();
    options.keep_results_us = 1000;
    options.keep_records_us = 5000;
    options.on_round = [&] {
      MutexLock lock(mutex);
      done = true;
      changed.NotifyAll();
    };
    const Janitor janitor(options, actor_, clock_);
    MutexLock lock(mutex);
    while (!done) {
      changed.Wait(mutex);
    }
  }
  bool HasFile(const std::string& id) const {
    return std::filesystem::exists(folder_.path() + "/jobs/" + id);
  }

  TemporaryFolder folder_;
  FakeClock clock_;
  MemoryDisk disk_;
  StoreActor actor_;
};

TEST_F(JanitorTest, KeepsWhatIsYoung) {
  clock_.Advance(900);
  Clean();
  EXPECT_FALSE(actor_.store().GetJob("ended")->purged);
  EXPECT_TRUE(HasFile("ended"));
}

TEST_F(JanitorTest, ForgetsResultsAndInputFirstThenTheRecord) {
  clock_.Advance(2000);
  Clean();
  EXPECT_TRUE(actor_.store().GetJob("ended")->purged);
  EXPECT_FALSE(HasFile("ended"));
  clock_.Advance(4000);
  Clean();
  EXPECT_THAT(actor_.store().GetJob("ended"), StatusIs(absl::StatusCode::kNotFound, "ended"));
}

TEST_F(JanitorTest, NeverTouchesAJobThatHasNotEnded) {
  clock_.Advance(int64_t{1} << 50);
  Clean();
  Clean();
  EXPECT_FALSE(actor_.store().GetJob("open")->purged);
  EXPECT_TRUE(HasFile("open"));
}

}  // namespace
}  // namespace nightshift
