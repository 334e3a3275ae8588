// What every JobStore promises. Each case runs over the memory store and over SQLite.
#include "server/store/job_store.h"

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "server/store/sqlite_job_store.h"
#include "tests/support/memory_job_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Opens stores on one lasting place.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::unique_ptr<JobStore> Open() = 0;
};

class MemoryPlace : public Place {
 public:
  std::unique_ptr<JobStore> Open() override { return std::make_unique<MemoryJobStore>(disk_); }

 private:
  MemoryDisk disk_;
};

class SqlitePlace : public Place {
 public:
  std::unique_ptr<JobStore> Open() override {
    auto store = SqliteJobStore::Open({.path = folder_.path() + "/store.sqlite"});
    CHECK(store.ok());
    return *std::move(store);
  }

 private:
  TemporaryFolder folder_;
};

struct PlaceKind {
  std::string name;
  std::function<std::unique_ptr<Place>()> make;
};

class JobStoreTest : public ::testing::TestWithParam<PlaceKind> {
 protected:
  JobStoreTest() : place_(GetParam().make()), store_(place_->Open()) {}

  // A stop and a start; what was not committed is lost.
  void Restart() {
    store_.reset();
    store_ = place_->Open();
  }
  void Begin() { ASSERT_OK(store_->Begin()); }
  void Commit() { ASSERT_OK(store_->Commit()); }
  // Runs `change` in a transaction of its own.
  template <typename Change>
  auto Apply(Change change) {
    CHECK(store_->Begin().ok());
    auto answer = change(*store_);
    CHECK(store_->Commit().ok());
    return answer;
  }

  static JobRecord MakeJob(const std::string& id) {
    JobRecord job;
    job.id = id;
    job.uid = "uid-" + id;
    job.tenant = "tenant";
    job.request_id = "request-" + id;
    job.fingerprint = std::string("\0\x01", 2);
    job.model = "model";
    job.spec = std::string("spec\0spec", 9);
    job.input_format = 1;
    job.input_file = "jobs/" + id;
    job.create_time_us = 1000;
    return job;
  }
  static std::vector<NewRow> MakeRows(int64_t count, int64_t first = 0) {
    std::vector<NewRow> rows;
    for (int64_t i = first; i < first + count; ++i) {
      rows.push_back({.index = i, .offset = i * 10, .length = 10, .line = i + 1, .crc = 100 + i,
                      .error_body = {}});
    }
    return rows;
  }
  static FinishedRow Finished(const std::string& id, int64_t index,
                              RowState outcome = RowState::kSucceeded) {
    return {.job_id = id,
            .index = index,
            .outcome = outcome,
            .body = absl::StrCat("result ", index),
            .prompt_tokens = 5,
            .output_tokens = 3,
            .cached_tokens = 1};
  }
  void AddUncheckedJob(const JobRecord& job, const std::vector<NewRow>& rows) {
    ASSERT_OK(Apply([&](JobStore& store) -> absl::Status {
      CHECK(store.InsertJob(job).ok());
      CHECK(store.InsertRows(job.id, rows).ok());
      return store.FinishReceiving(job.id, 2000);
    }));
  }
  void SaveChecked(const CheckedRows& rows) {
    ASSERT_OK(Apply([&](JobStore& store) { return store.SaveChecked(rows); }));
  }
  void AddJob(const JobRecord& job, const std::vector<NewRow>& rows) {
    AddUncheckedJob(job, rows);
    SaveChecked({.job_id = job.id, .end_index = static_cast<int64_t>(rows.size())});
  }
  void AddJob(const std::string& id, int64_t num_rows) { AddJob(MakeJob(id), MakeRows(num_rows)); }
  std::vector<ClaimedRow> Claim(const std::string& id, int64_t limit,
                                const std::vector<int64_t>& preferred = {}) {
    auto rows = Apply([&](JobStore& store) { return store.Claim(id, limit, preferred, 3000); });
    CHECK(rows.ok());
    return *rows;
  }
  int64_t Publish(const std::vector<FinishedRow>& rows) {
    auto dropped = Apply([&](JobStore& store) { return store.Publish(rows, 4000); });
    CHECK(dropped.ok());
    return *dropped;
  }
  JobRecord Job(const std::string& id) {
    auto job = store_->GetJob(id);
    CHECK(job.ok());
    return *job;
  }
  std::vector<std::string> Bodies(const std::string& id, int64_t after_seq = 0) {
    auto results = store_->ReadResults(id, after_seq, 1 << 20);
    CHECK(results.ok());
    std::vector<std::string> bodies;
    for (const StoredResult& result : *results) {
      EXPECT_EQ(result.seq, after_seq + static_cast<int64_t>(bodies.size()) + 1);
      bodies.push_back(result.body);
    }
    return bodies;
  }
  std::vector<int64_t> NeverClaimed(const std::string& id, int64_t first_index, int64_t end_index,
                                    int64_t limit) {
    auto rows = store_->NeverClaimed(id, first_index, end_index, limit);
    CHECK(rows.ok());
    std::vector<int64_t> indices;
    for (const StoredRow& row : *rows) {
      EXPECT_EQ(row.length, 10);
      indices.push_back(row.index);
    }
    return indices;
  }
  static std::vector<int64_t> Indices(const std::vector<ClaimedRow>& rows) {
    std::vector<int64_t> indices;
    for (const ClaimedRow& row : rows) {
      indices.push_back(row.index);
    }
    return indices;
  }

  std::unique_ptr<Place> place_;
  std::unique_ptr<JobStore> store_;
};

TEST_P(JobStoreTest, TellsWhatATenantHas) {
  const auto usage = [this](const std::string& tenant) { return *store_->ReadUsage(tenant); };
  JobRecord other = MakeJob("other");
  other.tenant = "elsewhere";
  other.input_bytes = 1000;
  AddJob("a", 2);
  ASSERT_OK(Apply([&](JobStore& store) { return store.InsertJob(other); }));
  EXPECT_EQ(usage("tenant").active_jobs, 1);
  EXPECT_EQ(usage("tenant").queued_requests, 2);
  EXPECT_EQ(usage("tenant").stored_bytes, 0);
  EXPECT_EQ(usage("elsewhere").active_jobs, 1) << "one that is being received counts";
  EXPECT_EQ(usage("elsewhere").stored_bytes, 1000);
  EXPECT_EQ(usage("nobody").active_jobs, 0);
  ASSERT_OK(Apply([](JobStore& store) { return store.Claim("a", 2, {}, 1); }));
  ASSERT_OK(Apply([](JobStore& store) {
    return store.Publish({Finished("a", 0), Finished("a", 1)}, 2);
  }));
  EXPECT_EQ(usage("tenant").active_jobs, 0);
  EXPECT_EQ(usage("tenant").queued_requests, 0);
  EXPECT_EQ(usage("tenant").stored_bytes, 16) << "two bodies of \"result N\"";
  EXPECT_EQ(store_->GetJob("a")->result_bytes, 16);
  ASSERT_OK(Apply([](JobStore& store) { return store.PurgeResults("a"); }));
  EXPECT_EQ(usage("tenant").stored_bytes, 0);
  ASSERT_OK(Apply([](JobStore& store) { return store.DeleteJob("other"); }));
  EXPECT_EQ(usage("elsewhere").active_jobs, 0);
  EXPECT_EQ(usage("elsewhere").stored_bytes, 0);
}

TEST_P(JobStoreTest, ListsATenantsJobs) {
  JobRecord other = MakeJob("other");
  other.tenant = "elsewhere";
  AddJob("a", 1);
  ASSERT_OK(Apply([&](JobStore& store) { return store.InsertJob(other); }));
  ASSERT_OK(Apply([](JobStore& store) { return store.FinishReceiving("other", 1); }));
  JobFilter filter;
  EXPECT_EQ(store_->ListJobs(filter, 10)->size(), 2U);
  filter.tenant = "elsewhere";
  ASSERT_OK_AND_ASSIGN(const std::vector<JobRecord> jobs, store_->ListJobs(filter, 10));
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].id, "other");
}

TEST_P(JobStoreTest, KeepsAJobAsItWasSubmitted) {
  AddJob("a", 3);
  Restart();
  const JobRecord job = Job("a");
  EXPECT_EQ(job.uid, "uid-a");
  EXPECT_EQ(job.spec, std::string("spec\0spec", 9));
  EXPECT_EQ(job.fingerprint, std::string("\0\x01", 2));
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.counts.total, 3);
  EXPECT_EQ(job.counts.pending, 3);
  EXPECT_EQ(job.create_time_us, 1000);
  EXPECT_EQ(job.input_file, "jobs/a");
}

TEST_P(JobStoreTest, RefusesAnIdOrRequestIdThatIsTaken) {
  AddJob("a", 1);
  EXPECT_THAT(Apply([](JobStore& store) { return store.InsertJob(MakeJob("a")); }),
              StatusIs(absl::StatusCode::kAlreadyExists, "a"));
  JobRecord same_request = MakeJob("b");
  same_request.request_id = "request-a";
  EXPECT_THAT(Apply([&](JobStore& store) { return store.InsertJob(same_request); }),
              StatusIs(absl::StatusCode::kAlreadyExists, "request-a"));
  same_request.tenant = "other";
  EXPECT_OK(Apply([&](JobStore& store) { return store.InsertJob(same_request); }));
}

TEST_P(JobStoreTest, ManyJobsMayHaveNoRequestId) {
  for (const char* id : {"a", "b"}) {
    JobRecord job = MakeJob(id);
    job.request_id.clear();
    AddJob(job, MakeRows(1));
  }
  EXPECT_THAT(store_->FindSubmission("tenant", ""), StatusIs(absl::StatusCode::kNotFound, ""));
}

TEST_P(JobStoreTest, FindsASubmissionAlsoWhileItIsReceived) {
  ASSERT_OK(Apply([](JobStore& store) { return store.InsertJob(MakeJob("a")); }));
  auto found = store_->FindSubmission("tenant", "request-a");
  ASSERT_OK(found);
  EXPECT_EQ(found->id, "a");
  EXPECT_EQ(found->state, JobState::kReceiving);
  EXPECT_THAT(store_->FindSubmission("stranger", "request-a"),
              StatusIs(absl::StatusCode::kNotFound, "request-a"));
}

TEST_P(JobStoreTest, HidesAJobUntilItIsReceived) {
  ASSERT_OK(Apply([](JobStore& store) { return store.InsertJob(MakeJob("a")); }));
  EXPECT_THAT(store_->GetJob("a"), StatusIs(absl::StatusCode::kNotFound, "a"));
  EXPECT_THAT(*store_->ListJobs({}, 10), IsEmpty());
  EXPECT_THAT(*store_->ActiveJobs(), IsEmpty());
  EXPECT_THAT(Claim("a", 10), IsEmpty());
}

TEST_P(JobStoreTest, RefusesRowsThatDoNotFollow) {
  ASSERT_OK(Apply([](JobStore& store) { return store.InsertJob(MakeJob("a")); }));
  Begin();
  ASSERT_OK(store_->InsertRows("a", MakeRows(2)));
  ASSERT_OK(store_->InsertRows("a", MakeRows(2, 2)));
  EXPECT_THAT(store_->InsertRows("a", MakeRows(1, 7)),
              StatusIs(absl::StatusCode::kInternal, "row 7"));
  store_->Rollback();
}

TEST_P(JobStoreTest, TakesNoRowsAfterAJobWasReceived) {
  AddJob("a", 1);
  EXPECT_THAT(Apply([](JobStore& store) { return store.InsertRows("a", MakeRows(1, 1)); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a"));
}

TEST_P(JobStoreTest, PublishesRowsThatCanNeverRunAtAcceptance) {
  std::vector<NewRow> rows = MakeRows(3);
  rows[1].error_body = "bad line";
  AddJob(MakeJob("a"), rows);
  EXPECT_EQ(Job("a").counts.failed, 1);
  EXPECT_EQ(Job("a").last_seq, 1);
  EXPECT_THAT(Bodies("a"), ElementsAre("bad line"));
  EXPECT_THAT(Indices(Claim("a", 10)), ElementsAre(0, 2));
}

TEST_P(JobStoreTest, AJobOfBadRowsAloneEndsAtAcceptance) {
  std::vector<NewRow> rows = MakeRows(1);
  rows[0].error_body = "bad";
  AddJob(MakeJob("a"), rows);
  EXPECT_EQ(Job("a").state, JobState::kSucceeded);
  EXPECT_EQ(Job("a").end_time_us, 2000);
}

TEST_P(JobStoreTest, ClaimsOnlyRowsThatWereCheckedAndTellsHowLongTheyAre) {
  AddUncheckedJob(MakeJob("a"), MakeRows(5));
  EXPECT_EQ(Job("a").state, JobState::kValidating);
  EXPECT_THAT(Claim("a", 10), IsEmpty());
  EXPECT_EQ(Job("a").state, JobState::kValidating) << "nothing was claimed";
  SaveChecked({.job_id = "a",
               .end_index = 2,
               .prompts = 2,
               .prompt_tokens = 30,
               .longest_prompt_tokens = 20});
  EXPECT_THAT(Indices(Claim("a", 10)), ElementsAre(0, 1));
  EXPECT_EQ(Job("a").state, JobState::kRunning) << "while others are still checked";
  SaveChecked({.job_id = "a",
               .end_index = 5,
               .prompts = 1,
               .prompt_tokens = 7,
               .longest_prompt_tokens = 7});
  SaveChecked({.job_id = "a", .end_index = 5, .prompts = 1, .prompt_tokens = 7});
  SaveChecked({.job_id = "gone", .end_index = 5});
  Restart();
  EXPECT_EQ(Job("a").checked, 5);
  EXPECT_EQ(Job("a").checked_prompts, 3);
  EXPECT_EQ(Job("a").checked_prompt_tokens, 37);
  EXPECT_EQ(Job("a").longest_prompt_tokens, 20);
  EXPECT_THAT(Indices(Claim("a", 10)), ElementsAre(2, 3, 4));
}

TEST_P(JobStoreTest, AJobIsQueuedOnceItIsCheckedAndCanBePausedOrEndedBefore) {
  for (const char* id : {"a", "b", "c", "d"}) {
    AddUncheckedJob(MakeJob(id), MakeRows(2));
  }
  SaveChecked({.job_id = "a", .end_index = 2});
  EXPECT_EQ(Job("a").state, JobState::kQueued);
  ASSERT_OK(Apply([](JobStore& store) { return store.PauseJob("b"); }));
  ASSERT_OK(Apply([](JobStore& store) { return store.ResumeJob("b"); }));
  EXPECT_EQ(Job("b").state, JobState::kValidating);
  ASSERT_OK(Apply([](JobStore& store) { return store.PauseJob("b"); }));
  SaveChecked({.job_id = "b", .end_index = 2});
  EXPECT_EQ(Job("b").state, JobState::kPaused);
  ASSERT_OK(Apply([](JobStore& store) { return store.ResumeJob("b"); }));
  EXPECT_EQ(Job("b").state, JobState::kQueued);
  ASSERT_OK(Apply([](JobStore& store) { return store.RequestCancel("c"); }));
  EXPECT_EQ(Job("c").state, JobState::kCancelling);
  EXPECT_THAT(Indices(*store_->NextUnfinished("c", 10)), ElementsAre(0, 1)) << "unchecked ones too";
  ASSERT_OK(Apply([](JobStore& store) { return store.FailJob("d", "error", 1); }));
  EXPECT_EQ(Job("d").state, JobState::kCancelling);
  EXPECT_EQ(Job("d").end_state, JobState::kFailed);
}

TEST_P(JobStoreTest, TellsWhichRowsHaveAResult) {
  std::vector<NewRow> rows = MakeRows(3);
  rows[1].error_body = "bad line";
  AddJob(MakeJob("a"), rows);
  const auto stored = store_->ReadRows("a", 0, 10);
  ASSERT_OK(stored);
  ASSERT_THAT(*stored, SizeIs(3));
  EXPECT_FALSE((*stored)[0].has_result);
  EXPECT_TRUE((*stored)[1].has_result);
  EXPECT_EQ((*stored)[2].line, 3);
}

TEST_P(JobStoreTest, ClaimsInOrderOnceEach) {
  AddJob("a", 5);
  const std::vector<ClaimedRow> first = Claim("a", 2);
  EXPECT_THAT(Indices(first), ElementsAre(0, 1));
  EXPECT_EQ(first[1].offset, 10);
  EXPECT_EQ(first[1].length, 10);
  EXPECT_EQ(first[1].line, 2);
  EXPECT_EQ(first[1].crc, 101);
  EXPECT_EQ(first[1].attempt, 1);
  EXPECT_THAT(Indices(Claim("a", 10)), ElementsAre(2, 3, 4));
  EXPECT_THAT(Claim("a", 10), IsEmpty());
  EXPECT_EQ(Job("a").state, JobState::kRunning);
  EXPECT_EQ(Job("a").start_time_us, 3000);
  EXPECT_EQ(Job("a").counts.running, 5);
}

TEST_P(JobStoreTest, ClaimsPreferredRowsBehindThoseGivenBackAndBeforeTheOthers) {
  AddUncheckedJob(MakeJob("a"), MakeRows(9));
  SaveChecked({.job_id = "a", .end_index = 8});
  EXPECT_THAT(Indices(Claim("a", 3, {6, 2, 4, 0})), ElementsAre(6, 2, 4));
  EXPECT_THAT(NeverClaimed("a", 0, 8, 10), ElementsAre(0, 1, 3, 5, 7));
  EXPECT_THAT(NeverClaimed("a", 1, 7, 2), ElementsAre(1, 3));
  ASSERT_OK(Apply([](JobStore& store) {
    return store.Unclaim({{.job_id = "a", .index = 4, .progress = "tokens"}}, false);
  }));
  EXPECT_THAT(NeverClaimed("a", 0, 9, 10), ElementsAre(0, 1, 3, 5, 7, 8));
  // 2 runs, 4 was given back, 8 is not checked.
  const std::vector<ClaimedRow> rows = Claim("a", 5, {7, 2, 4, 8, 7, 5});
  EXPECT_THAT(Indices(rows), ElementsAre(4, 7, 5, 0, 1));
  EXPECT_EQ(rows[0].progress, "tokens");
  EXPECT_EQ(rows[1].attempt, 1);
  EXPECT_EQ(Publish({Finished("a", 0), Finished("a", 7)}), 0);
  EXPECT_THAT(NeverClaimed("a", 0, 9, 10), ElementsAre(3, 8));
  EXPECT_THAT(Indices(Claim("a", 10)), ElementsAre(3));
  EXPECT_EQ(Job("a").counts.running, 6);
  EXPECT_EQ(Job("a").counts.pending, 1);
}

TEST_P(JobStoreTest, PublishesInCommitOrderWithDenseNumbers) {
  AddJob("a", 3);
  Claim("a", 3);
  EXPECT_EQ(Publish({Finished("a", 2), Finished("a", 0)}), 0);
  EXPECT_EQ(Publish({Finished("a", 1)}), 0);
  EXPECT_THAT(Bodies("a"), ElementsAre("result 2", "result 0", "result 1"));
  EXPECT_THAT(Bodies("a", 2), ElementsAre("result 1"));
  EXPECT_THAT(Bodies("a", 3), IsEmpty());
  const JobRecord job = Job("a");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.end_time_us, 4000);
  EXPECT_EQ(job.prompt_tokens, 15);
  EXPECT_EQ(job.output_tokens, 9);
  EXPECT_EQ(job.cached_tokens, 3);
}

TEST_P(JobStoreTest, FirstPublicationWins) {
  AddJob("a", 2);
  Claim("a", 2);
  FinishedRow late = Finished("a", 0);
  late.body = "late";
  EXPECT_EQ(Publish({Finished("a", 0), late}), 1);
  EXPECT_EQ(Publish({late}), 1);
  EXPECT_THAT(Bodies("a"), ElementsAre("result 0"));
  EXPECT_EQ(Job("a").last_seq, 1);
  EXPECT_EQ(Job("a").counts.succeeded, 1);
  EXPECT_EQ(Publish({Finished("nobody", 0)}), 1);
}

TEST_P(JobStoreTest, OneWriteMayPublishForSeveralJobs) {
  AddJob("a", 1);
  AddJob("b", 2);
  Claim("a", 1);
  Claim("b", 2);
  EXPECT_EQ(Publish({Finished("b", 1), Finished("a", 0), Finished("b", 0, RowState::kFailed)}), 0);
  EXPECT_THAT(Bodies("b"), ElementsAre("result 1", "result 0"));
  EXPECT_EQ(Job("b").counts.failed, 1);
  EXPECT_EQ(Job("a").state, JobState::kSucceeded);
}

TEST_P(JobStoreTest, ReadsResultsInBoundedPieces) {
  AddJob("a", 4);
  Claim("a", 4);
  Publish({Finished("a", 0), Finished("a", 1), Finished("a", 2), Finished("a", 3)});
  EXPECT_THAT(*store_->ReadResults("a", 0, 1), SizeIs(1));
  EXPECT_THAT(*store_->ReadResults("a", 1, 9), SizeIs(2));
  EXPECT_THAT(store_->ReadResults("nobody", 0, 1), StatusIs(absl::StatusCode::kNotFound, "nobody"));
}

TEST_P(JobStoreTest, RowsGivenBackComeFirstWithTheirProgress) {
  AddJob("a", 6);
  Claim("a", 4);
  ASSERT_OK(Apply([](JobStore& store) {
    return store.Unclaim({{.job_id = "a", .index = 3, .progress = "tokens"},
                          {.job_id = "a", .index = 1, .progress = ""}},
                         /*count_attempt=*/false);
  }));
  EXPECT_EQ(Job("a").counts.pending, 4);
  const std::vector<ClaimedRow> rows = Claim("a", 3);
  EXPECT_THAT(Indices(rows), ElementsAre(1, 3, 4));
  EXPECT_EQ(rows[0].attempt, 1);
  EXPECT_EQ(rows[1].attempt, 1);
  EXPECT_EQ(rows[1].progress, "tokens");
}

TEST_P(JobStoreTest, CountsAnAttemptThatWasAFault) {
  AddJob("a", 1);
  Claim("a", 1);
  ASSERT_OK(Apply([](JobStore& store) {
    return store.Unclaim({{.job_id = "a", .index = 0, .progress = {}}}, /*count_attempt=*/true);
  }));
  EXPECT_EQ(Claim("a", 1)[0].attempt, 2);
}

TEST_P(JobStoreTest, GivingBackKeepsSavedProgress) {
  AddJob("a", 1);
  Claim("a", 1);
  ASSERT_OK(Apply([](JobStore& store) {
    return store.SaveProgress({{.job_id = "a", .index = 0, .progress = "first"}});
  }));
  ASSERT_OK(Apply([](JobStore& store) {
    return store.SaveProgress({{.job_id = "a", .index = 0, .progress = "second"}});
  }));
  ASSERT_OK(Apply([](JobStore& store) {
    return store.Unclaim({{.job_id = "a", .index = 0, .progress = {}}}, /*count_attempt=*/false);
  }));
  EXPECT_EQ(Claim("a", 1)[0].progress, "second");
}

TEST_P(JobStoreTest, ProgressOfAnEndedRowIsNotKept) {
  AddJob("a", 2);
  Claim("a", 1);
  Publish({Finished("a", 0)});
  ASSERT_OK(Apply([](JobStore& store) -> absl::Status {
    CHECK(store.SaveProgress({{.job_id = "a", .index = 0, .progress = "late"}}).ok());
    return store.Unclaim({{.job_id = "a", .index = 0, .progress = "late"}}, false);
  }));
  EXPECT_THAT(Indices(Claim("a", 2)), ElementsAre(1));
  EXPECT_EQ(Job("a").counts.succeeded, 1);
}

TEST_P(JobStoreTest, KeepsTheLastReportOfAJobToItsEndAndAfter) {
  const auto save = [&](const std::string& id, const std::string& report) {
    return Apply([&](JobStore& store) { return store.SaveReports({{id, report}}); });
  };
  AddJob("a", 1);
  AddJob("b", 1);
  EXPECT_EQ(Job("a").report, "");
  ASSERT_OK(save("a", std::string("first\0of two", 12)));
  EXPECT_EQ(Job("a").report, std::string("first\0of two", 12));
  Claim("a", 1);
  Publish({Finished("a", 0)});
  ASSERT_OK(save("a", "second"));
  EXPECT_OK(save("gone", "report"));
  Restart();
  EXPECT_EQ(Job("a").report, "second");
  EXPECT_EQ(Job("a").state, JobState::kSucceeded);
  EXPECT_EQ(Job("b").report, "");
}

TEST_P(JobStoreTest, RecoveryGivesRunningRowsBackWithoutCountingTheAttempt) {
  AddJob("a", 3);
  Claim("a", 2);
  ASSERT_OK(Apply([](JobStore& store) {
    return store.SaveProgress({{.job_id = "a", .index = 1, .progress = "half"}});
  }));
  Publish({Finished("a", 0)});
  Restart();
  EXPECT_EQ(Job("a").counts.running, 1);
  ASSERT_OK(Apply([](JobStore& store) { return store.Recover(); }));
  EXPECT_EQ(Job("a").counts.running, 0);
  EXPECT_EQ(Job("a").counts.pending, 2);
  const std::vector<ClaimedRow> rows = Claim("a", 5);
  EXPECT_THAT(Indices(rows), ElementsAre(1, 2));
  EXPECT_EQ(rows[0].progress, "half");
  EXPECT_EQ(rows[0].attempt, 1);
}

TEST_P(JobStoreTest, RecoveryRemovesWhatWasNeverReceivedWhole) {
  AddJob("a", 1);
  ASSERT_OK(Apply([](JobStore& store) -> absl::Status {
    CHECK(store.InsertJob(MakeJob("b")).ok());
    return store.InsertRows("b", MakeRows(2));
  }));
  Restart();
  auto files = Apply([](JobStore& store) { return store.Recover(); });
  ASSERT_OK(files);
  EXPECT_THAT(*files, ElementsAre("jobs/b"));
  EXPECT_THAT(*store_->InputFiles(), ElementsAre("jobs/a"));
  AddJob("b", 1);
  EXPECT_EQ(Job("b").counts.total, 1);
}

TEST_P(JobStoreTest, CancelLeavesFinishedWorkAndEndsWithTheLastRow) {
  AddJob("a", 3);
  Claim("a", 2);
  Publish({Finished("a", 0)});
  ASSERT_OK(Apply([](JobStore& store) { return store.RequestCancel("a"); }));
  EXPECT_EQ(Job("a").state, JobState::kCancelling);
  EXPECT_THAT(Claim("a", 5), IsEmpty());
  Publish({Finished("a", 1, RowState::kCancelled)});
  EXPECT_THAT(Indices(*store_->NextUnfinished("a", 10)), ElementsAre(2));
  EXPECT_EQ(Job("a").state, JobState::kCancelling);
  Publish({Finished("a", 2, RowState::kCancelled)});
  EXPECT_EQ(Job("a").state, JobState::kCancelled);
  EXPECT_EQ(Job("a").counts.cancelled, 2);
  EXPECT_EQ(Job("a").counts.succeeded, 1);
  EXPECT_EQ(Publish({Finished("a", 2)}), 1);
}

TEST_P(JobStoreTest, CancelIsIdempotentUntilAnotherEnd) {
  AddJob("a", 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(Apply([](JobStore& store) { return store.RequestCancel("a"); }));
  }
  Publish({Finished("a", 0, RowState::kCancelled)});
  EXPECT_OK(Apply([](JobStore& store) { return store.RequestCancel("a"); }));
  AddJob("b", 1);
  Publish({Finished("b", 0)});
  EXPECT_THAT(Apply([](JobStore& store) { return store.RequestCancel("b"); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, "b"));
  EXPECT_THAT(Apply([](JobStore& store) { return store.RequestCancel("nobody"); }),
              StatusIs(absl::StatusCode::kNotFound, "nobody"));
}

TEST_P(JobStoreTest, AFailingJobFailsWithItsLastRow) {
  AddJob("a", 2);
  Claim("a", 1);
  ASSERT_OK(Apply([](JobStore& store) { return store.FailJob("a", "why", 5000); }));
  EXPECT_EQ(Job("a").state, JobState::kCancelling);
  Restart();
  Publish({Finished("a", 0, RowState::kFailed), Finished("a", 1, RowState::kFailed)});
  EXPECT_EQ(Job("a").state, JobState::kFailed);
  EXPECT_EQ(Job("a").error, "why");
  EXPECT_EQ(Job("a").counts.failed, 2);
}

TEST_P(JobStoreTest, ListsNewestFirstByPages) {
  for (int i = 0; i < 5; ++i) {
    JobRecord job = MakeJob(absl::StrCat("job-", i));
    job.create_time_us = 1000 + i / 2;  // pairs of the same age
    AddJob(job, MakeRows(1));
  }
  std::vector<std::string> ids;
  JobFilter filter;
  for (;;) {
    auto page = store_->ListJobs(filter, 2);
    ASSERT_OK(page);
    if (page->empty()) {
      break;
    }
    for (const JobRecord& job : *page) {
      ids.push_back(job.id);
    }
    filter.before_create_time_us = page->back().create_time_us;
    filter.before_id = page->back().id;
  }
  EXPECT_THAT(ids, ElementsAre("job-4", "job-3", "job-2", "job-1", "job-0"));
}

TEST_P(JobStoreTest, ListsByState) {
  AddJob("a", 1);
  AddJob("b", 1);
  Publish({Finished("b", 0)});
  JobFilter filter;
  filter.state = JobState::kSucceeded;
  auto jobs = store_->ListJobs(filter, 10);
  ASSERT_OK(jobs);
  ASSERT_THAT(*jobs, SizeIs(1));
  EXPECT_EQ((*jobs)[0].id, "b");
}

TEST_P(JobStoreTest, ActiveJobsGoByPriorityThenAge) {
  const std::vector<std::tuple<std::string, int32_t, int64_t>> jobs = {
      {"young", 2, 30}, {"old", 2, 10}, {"urgent", 3, 40}, {"low", 1, 5}};
  for (const auto& [id, priority, create_time_us] : jobs) {
    JobRecord job = MakeJob(id);
    job.priority = priority;
    job.create_time_us = create_time_us;
    AddJob(job, MakeRows(1));
  }
  AddJob("done", 1);
  Publish({Finished("done", 0)});
  auto active = store_->ActiveJobs();
  ASSERT_OK(active);
  std::vector<std::string> ids;
  for (const JobRecord& job : *active) {
    ids.push_back(job.id);
  }
  EXPECT_THAT(ids, ElementsAre("urgent", "old", "young", "low"));
}

TEST_P(JobStoreTest, CountsJobsByState) {
  EXPECT_THAT(*store_->CountJobs(), IsEmpty());
  AddJob("a", 1);
  AddJob("b", 1);
  AddJob("c", 1);
  Publish({Finished("a", 0)});
  ASSERT_OK(Apply([](JobStore& store) { return store.DeleteJob("b"); }));
  EXPECT_THAT(*store_->CountJobs(),
              UnorderedElementsAre(Pair(JobState::kSucceeded, 1), Pair(JobState::kQueued, 1)));
}

TEST_P(JobStoreTest, DeletesEverythingOfAJob) {
  AddJob("a", 2);
  AddJob("b", 1);
  Claim("a", 1);
  Publish({Finished("a", 0)});
  ASSERT_OK(Apply([](JobStore& store) { return store.DeleteJob("a"); }));
  EXPECT_THAT(store_->GetJob("a"), StatusIs(absl::StatusCode::kNotFound, "a"));
  AddJob("a", 1);
  EXPECT_THAT(Bodies("a"), IsEmpty());
  EXPECT_EQ(Job("b").counts.total, 1);
}

TEST_P(JobStoreTest, ADeletedJobIsGoneAtOnceAndItsNamesAreFree) {
  AddJob("a", 2);
  Claim("a", 2);
  ASSERT_OK(Apply([](JobStore& store) { return store.DeleteJob("a"); }));
  EXPECT_THAT(store_->FindSubmission("tenant", "request-a"),
              StatusIs(absl::StatusCode::kNotFound, ""));
  auto active = store_->ActiveJobs();
  ASSERT_OK(active);
  EXPECT_THAT(*active, IsEmpty());
  auto listed = store_->ListJobs({}, 10);
  ASSERT_OK(listed);
  EXPECT_THAT(*listed, IsEmpty());
  auto files = store_->InputFiles();
  ASSERT_OK(files);
  EXPECT_THAT(*files, IsEmpty());
  EXPECT_EQ(Publish({Finished("a", 0)}), 1) << "dropped";
  AddJob("a", 1);
  EXPECT_EQ(Job("a").counts.total, 1);
}

TEST_P(JobStoreTest, WhatIsMeantForADeletedJobMissesTheOneThatHasItsNameNow) {
  AddJob("a", 2);
  const std::vector<ClaimedRow> old = Claim("a", 2);
  ASSERT_EQ(old[0].job_uid, "uid-a");
  ASSERT_OK(Apply([](JobStore& store) { return store.DeleteJob("a"); }));
  JobRecord anew = MakeJob("a");
  anew.uid = "uid-a-anew";
  AddUncheckedJob(anew, MakeRows(2));
  SaveChecked({.job_id = "a", .job_uid = "uid-a", .end_index = 2});
  EXPECT_EQ(Job("a").checked, 0);
  SaveChecked({.job_id = "a", .job_uid = "uid-a-anew", .end_index = 2});
  ASSERT_EQ(Claim("a", 2)[0].job_uid, "uid-a-anew");
  FinishedRow finished = Finished("a", 0);
  finished.job_uid = "uid-a";
  EXPECT_EQ(Publish({finished}), 1) << "dropped";
  const RowProgress progress = {
      .job_id = "a", .job_uid = "uid-a", .index = 1, .progress = "of the deleted one"};
  ASSERT_OK(Apply([&](JobStore& store) { return store.SaveProgress({progress}); }));
  ASSERT_OK(Apply([&](JobStore& store) { return store.Unclaim({progress}, false); }));
  EXPECT_EQ(Job("a").counts.running, 2);
  finished.job_uid = "uid-a-anew";
  EXPECT_EQ(Publish({finished}), 0);
  RowProgress back = progress;
  back.job_uid = "uid-a-anew";
  back.progress.clear();
  ASSERT_OK(Apply([&](JobStore& store) { return store.Unclaim({back}, false); }));
  EXPECT_EQ(Claim("a", 1)[0].progress, "");
}

TEST_P(JobStoreTest, PurgingFreesDeletedJobsPieceByPieceAndTouchesNoOther) {
  AddJob("a", 25);
  AddJob("b", 3);
  for (int64_t i = 0; i < 20; ++i) {
    Publish({Finished("a", i)});
  }
  Publish({Finished("b", 1)});
  ASSERT_OK(Apply([](JobStore& store) { return store.DeleteJob("a"); }));
  int steps = 0;
  for (bool more = true; more; ++steps) {
    auto purged = Apply([](JobStore& store) { return store.PurgeDeleted(4); });
    ASSERT_OK(purged);
    more = *purged;
    ASSERT_LT(steps, 100);
  }
  EXPECT_THAT(Bodies("b"), ElementsAre("result 1"));
  EXPECT_EQ(Claim("b", 5).size(), 2U);
  Restart();
  EXPECT_EQ(Job("b").counts.total, 3);
}

TEST_P(JobStoreTest, PurgedResultsAreGoneAndTheRecordStays) {
  AddJob("a", 2);
  AddJob("running", 1);
  Publish({Finished("a", 0), Finished("a", 1)});
  for (const char* id : {"a", "running"}) {
    ASSERT_OK(Apply([&](JobStore& store) { return store.PurgeResults(id); }));
  }
  Restart();
  for (bool more = true; more;) {
    auto purged = Apply([](JobStore& store) { return store.PurgeDeleted(100); });
    ASSERT_OK(purged);
    more = *purged;
  }
  EXPECT_TRUE(Job("a").purged);
  EXPECT_EQ(Job("a").counts.succeeded, 2);
  EXPECT_EQ(Job("a").last_seq, 2);
  EXPECT_THAT(Bodies("a"), IsEmpty());
  EXPECT_FALSE(Job("running").purged) << "it has not ended";
  auto files = store_->InputFiles();
  ASSERT_OK(files);
  EXPECT_THAT(*files, ElementsAre("jobs/running"));
}

TEST_P(JobStoreTest, ListsWhatEndedBeforeATime) {
  for (const char* id : {"old", "new", "open"}) {
    AddJob(id, 1);
  }
  ASSERT_OK(Apply([](JobStore& store) { return store.Publish({Finished("new", 0)}, 900); }));
  ASSERT_OK(Apply([](JobStore& store) { return store.Publish({Finished("old", 0)}, 500); }));
  const auto ended = [this](int64_t before, bool purged) {
    auto ids = store_->EndedBefore(before, purged, 10);
    CHECK(ids.ok());
    return *ids;
  };
  EXPECT_THAT(ended(900, false), ElementsAre("old"));
  EXPECT_THAT(ended(1000, false), ElementsAre("old", "new"));
  ASSERT_OK(Apply([](JobStore& store) { return store.PurgeResults("old"); }));
  EXPECT_THAT(ended(1000, false), ElementsAre("new"));
  EXPECT_THAT(ended(1000, true), ElementsAre("old"));
}

TEST_P(JobStoreTest, APausedJobIsNotClaimedUntilItIsResumed) {
  AddJob("a", 3);
  const auto pause = [this] {
    return Apply([](JobStore& store) { return store.PauseJob("a"); });
  };
  const auto resume = [this] {
    return Apply([](JobStore& store) { return store.ResumeJob("a"); });
  };
  ASSERT_OK(pause());
  ASSERT_OK(pause()) << "again";
  EXPECT_EQ(Job("a").state, JobState::kPaused);
  EXPECT_THAT(Claim("a", 3), IsEmpty());
  Restart();
  EXPECT_EQ(Job("a").state, JobState::kPaused);
  ASSERT_OK(resume());
  EXPECT_EQ(Job("a").state, JobState::kQueued);
  EXPECT_THAT(Claim("a", 1), SizeIs(1));
  ASSERT_OK(pause());
  ASSERT_OK(resume());
  ASSERT_OK(resume()) << "again";
  EXPECT_EQ(Job("a").state, JobState::kRunning);
}

TEST_P(JobStoreTest, ResultsOfRowsThatWereRunningCountAlsoWhilePaused) {
  AddJob("a", 2);
  Claim("a", 2);
  ASSERT_OK(Apply([](JobStore& store) { return store.PauseJob("a"); }));
  Publish({Finished("a", 0)});
  EXPECT_EQ(Job("a").state, JobState::kPaused);
  Publish({Finished("a", 1)});
  EXPECT_EQ(Job("a").state, JobState::kSucceeded);
}

TEST_P(JobStoreTest, OnlyAnOpenJobCanBePausedOrResumed) {
  AddJob("a", 1);
  Publish({Finished("a", 0)});
  AddJob("b", 1);
  ASSERT_OK(Apply([](JobStore& store) { return store.RequestCancel("b"); }));
  for (const char* id : {"a", "b"}) {
    EXPECT_THAT(Apply([&](JobStore& store) { return store.PauseJob(id); }),
                StatusIs(absl::StatusCode::kFailedPrecondition, id));
    EXPECT_THAT(Apply([&](JobStore& store) { return store.ResumeJob(id); }),
                StatusIs(absl::StatusCode::kFailedPrecondition, id));
  }
  EXPECT_THAT(Apply([](JobStore& store) { return store.PauseJob("none"); }),
              StatusIs(absl::StatusCode::kNotFound, "none"));
}

TEST_P(JobStoreTest, AnOverdueJobExpiresOnceItsRowsHaveEnded) {
  JobRecord job = MakeJob("a");
  job.expire_time_us = 5000;
  AddJob(job, MakeRows(2));
  AddJob("never", 1);
  const auto expire = [this](int64_t now_us) {
    auto ids = Apply([&](JobStore& store) { return store.ExpireJobs(now_us); });
    CHECK(ids.ok());
    return *ids;
  };
  EXPECT_THAT(expire(4999), IsEmpty());
  Publish({Finished("a", 0)});
  EXPECT_THAT(expire(5000), ElementsAre("a"));
  EXPECT_THAT(expire(6000), IsEmpty());
  EXPECT_EQ(Job("a").state, JobState::kCancelling);
  EXPECT_EQ(Job("a").end_state, JobState::kExpired);
  ASSERT_OK(Apply([](JobStore& store) { return store.RequestCancel("a"); })) << "it ends anyway";
  Restart();
  Publish({Finished("a", 1, RowState::kExpired)});
  EXPECT_EQ(Job("a").state, JobState::kExpired);
  EXPECT_EQ(Job("a").counts.expired, 1);
  EXPECT_EQ(Job("a").counts.succeeded, 1);
  EXPECT_EQ(Job("a").expire_time_us, 5000);
}

TEST_P(JobStoreTest, APausedJobExpiresToo) {
  JobRecord job = MakeJob("a");
  job.expire_time_us = 10;
  AddJob(job, MakeRows(1));
  ASSERT_OK(Apply([](JobStore& store) { return store.PauseJob("a"); }));
  ASSERT_OK(Apply([](JobStore& store) { return store.ExpireJobs(10); }));
  EXPECT_EQ(Job("a").state, JobState::kCancelling);
}

TEST_P(JobStoreTest, ReadsResultsInTheOrderOfTheirRows) {
  std::vector<NewRow> rows = MakeRows(5);
  rows[1].error_body = "refused";
  AddJob(MakeJob("a"), rows);
  Publish({Finished("a", 3)});
  const auto read = [this](int64_t first) {
    auto results = store_->ReadResultsInInputOrder("a", first, 1 << 20);
    CHECK(results.ok());
    std::vector<std::string> bodies;
    for (const StoredResult& result : *results) {
      EXPECT_EQ(result.index, first + static_cast<int64_t>(bodies.size()));
      bodies.push_back(result.body);
    }
    return bodies;
  };
  EXPECT_THAT(read(0), IsEmpty());
  EXPECT_THAT(read(3), ElementsAre("result 3"));
  Publish({Finished("a", 2), Finished("a", 0)});
  EXPECT_THAT(read(0), ElementsAre("result 0", "refused", "result 2", "result 3"));
  Publish({Finished("a", 4)});
  Restart();
  EXPECT_THAT(read(2), ElementsAre("result 2", "result 3", "result 4"));
  EXPECT_THAT(read(5), IsEmpty());
  auto one = store_->ReadResultsInInputOrder("a", 0, 1);
  ASSERT_OK(one);
  EXPECT_THAT(*one, SizeIs(1));
  EXPECT_EQ((*one)[0].seq, 4);
}

TEST_P(JobStoreTest, TellsWhereRowsLieInTheInput) {
  AddJob("a", 5);
  auto rows = store_->ReadRows("a", 2, 2);
  ASSERT_OK(rows);
  ASSERT_THAT(*rows, SizeIs(2));
  EXPECT_EQ((*rows)[0].index, 2);
  EXPECT_EQ((*rows)[1].offset, 30);
  EXPECT_EQ((*rows)[1].length, 10);
  EXPECT_THAT(store_->ReadRows("none", 0, 1), StatusIs(absl::StatusCode::kNotFound, "none"));
}

TEST_P(JobStoreTest, KeepsWhichJobAJobWaitsFor) {
  JobRecord job = MakeJob("later");
  job.after_uid = "uid of another";
  AddJob(job, MakeRows(1));
  Restart();
  EXPECT_EQ(Job("later").after_uid, "uid of another");
  AddJob("first", 1);
  EXPECT_EQ(Job("first").after_uid, "");
}

TEST_P(JobStoreTest, ListsByTimeOfCreation) {
  for (int i = 0; i < 5; ++i) {
    JobRecord job = MakeJob(absl::StrCat("job-", i));
    job.create_time_us = 100 + i;
    AddJob(job, MakeRows(1));
  }
  JobFilter filter;
  filter.from_create_time_us = 102;
  filter.before_create_time_us = 104;
  auto jobs = store_->ListJobs(filter, 10);
  ASSERT_OK(jobs);
  std::vector<std::string> ids;
  for (const JobRecord& job : *jobs) {
    ids.push_back(job.id);
  }
  EXPECT_THAT(ids, ElementsAre("job-3", "job-2"));
}

TEST_P(JobStoreTest, KeepsWhichJobARetryIsOf) {
  JobRecord job = MakeJob("b");
  job.retry_of = "a";
  AddJob(job, MakeRows(1));
  Restart();
  EXPECT_EQ(Job("b").retry_of, "a");
}

TEST_P(JobStoreTest, WhatIsNotCommittedIsLost) {
  AddJob("a", 2);
  Begin();
  ASSERT_OK(store_->Claim("a", 1, {}, 0));
  ASSERT_OK(store_->Publish({Finished("a", 0)}, 0));
  store_->Rollback();
  EXPECT_EQ(Job("a").counts.pending, 2);
  Begin();
  ASSERT_OK(store_->Publish({Finished("a", 0)}, 0));
  Restart();
  EXPECT_EQ(Job("a").last_seq, 0);
  EXPECT_THAT(Bodies("a"), IsEmpty());
}

TEST_P(JobStoreTest, AMarkUndoesOneChangeAlone) {
  AddJob("a", 3);
  Begin();
  ASSERT_OK(store_->SetMark());
  ASSERT_OK(store_->Publish({Finished("a", 0)}, 0));
  ASSERT_OK(store_->ReleaseMark());
  ASSERT_OK(store_->SetMark());
  ASSERT_OK(store_->Publish({Finished("a", 1)}, 0));
  ASSERT_OK(store_->RollbackToMark());
  ASSERT_OK(store_->SetMark());
  ASSERT_OK(store_->Publish({Finished("a", 2)}, 0));
  ASSERT_OK(store_->ReleaseMark());
  Commit();
  EXPECT_THAT(Bodies("a"), ElementsAre("result 0", "result 2"));
}

TEST_P(JobStoreTest, AWriteReadsItsOwnChanges) {
  Begin();
  ASSERT_OK(store_->InsertJob(MakeJob("a")));
  ASSERT_OK(store_->InsertRows("a", MakeRows(1)));
  ASSERT_OK(store_->FinishReceiving("a", 0));
  EXPECT_OK(store_->GetJob("a"));
  EXPECT_OK(store_->FindSubmission("tenant", "request-a"));
  Commit();
}

TEST_P(JobStoreTest, OtherThreadsNeverSeeHalfAChange) {
  AddJob("a", 200);
  std::thread writer([this] {
    for (int64_t i = 0; i < 200; i += 2) {
      Publish({Finished("a", i), Finished("a", i + 1)});
    }
  });
  int64_t seen = 0;
  bool whole = true;
  while (seen < 200) {
    const auto results = store_->ReadResults("a", seen, 1 << 20);
    ASSERT_OK(results);
    const JobRecord job = Job("a");
    seen += static_cast<int64_t>(results->size());
    whole = whole && seen % 2 == 0 && job.last_seq % 2 == 0 && job.last_seq >= seen &&
            job.counts.pending + job.counts.succeeded == 200;
  }
  writer.join();
  EXPECT_TRUE(whole);
}

TEST_P(JobStoreTest, RandomLifeKeepsEveryRowOnceAndTheCountsRight) {
  AddJob("a", 60);
  uint64_t random = 12345;
  const auto draw = [&random](uint64_t bound) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int64_t>((random >> 33U) % bound);
  };
  std::set<int64_t> running;
  while (!IsTerminal(Job("a").state)) {
    const std::vector<int64_t> preferred = {draw(60), draw(60), draw(60)};
    for (const ClaimedRow& row : Claim("a", draw(9), preferred)) {
      EXPECT_TRUE(running.insert(row.index).second) << "claimed twice: " << row.index;
    }
    if (running.empty()) {
      continue;
    }
    auto chosen = running.begin();
    std::advance(chosen, draw(running.size()));
    switch (draw(4)) {
      case 0:
        ASSERT_OK(Apply([&](JobStore& store) {
          return store.Unclaim({{.job_id = "a", .index = *chosen, .progress = {}}}, true);
        }));
        running.erase(chosen);
        break;
      case 1:
        Restart();
        ASSERT_OK(Apply([](JobStore& store) { return store.Recover(); }));
        running.clear();
        break;
      default:
        EXPECT_EQ(Publish({Finished("a", *chosen)}), 0);
        running.erase(chosen);
    }
    const RowCounts counts = Job("a").counts;
    ASSERT_EQ(counts.pending + counts.running + counts.succeeded, 60);
    ASSERT_EQ(counts.running, static_cast<int64_t>(running.size()));
  }
  const std::vector<std::string> bodies = Bodies("a");
  EXPECT_THAT(bodies, SizeIs(60));
  EXPECT_THAT(std::set<std::string>(bodies.begin(), bodies.end()), SizeIs(60));
}

INSTANTIATE_TEST_SUITE_P(
    Stores, JobStoreTest,
    ::testing::Values(PlaceKind{"memory", [] { return std::make_unique<MemoryPlace>(); }},
                      PlaceKind{"sqlite", [] { return std::make_unique<SqlitePlace>(); }}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace nightshift
