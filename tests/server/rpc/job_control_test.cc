// What callers do to jobs that are there: pause, resume, retry, delete, drain, back up; and what
// the clock does.
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/clock.h"
#include "tests/server/rpc/service_world.h"

namespace nightshift {
namespace {

using ::grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JobControlTest : public ServiceWorld {
 protected:
  JobControlTest() {
    options_.disk_reserve_bytes = 0;
    Restart();
  }

  grpc::Status Pause(const std::string& name, v1::Job& job, const std::string& etag = "") {
    v1::PauseJobRequest request;
    request.set_name(name);
    request.set_etag(etag);
    grpc::ClientContext context;
    return jobs_->PauseJob(&context, request, &job);
  }
  grpc::Status Resume(const std::string& name, v1::Job& job, const std::string& etag = "") {
    v1::ResumeJobRequest request;
    request.set_name(name);
    request.set_etag(etag);
    grpc::ClientContext context;
    return jobs_->ResumeJob(&context, request, &job);
  }
  grpc::Status Retry(const std::string& name, v1::Job& job, const std::string& request_id = "") {
    v1::RetryFailedRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    grpc::ClientContext context;
    return jobs_->RetryFailed(&context, request, &job);
  }
  grpc::Status Delete(const v1::DeleteJobRequest& request) {
    grpc::ClientContext context;
    google::protobuf::Empty empty;
    return jobs_->DeleteJob(&context, request, &empty);
  }
  grpc::Status Delete(const std::string& name, bool force = false) {
    v1::DeleteJobRequest request;
    request.set_name(name);
    request.set_force(force);
    return Delete(request);
  }
  grpc::Status SetDrain(bool drain, v1::ServerInfo& info) {
    v1::SetDrainRequest request;
    request.set_drain(drain);
    grpc::ClientContext context;
    return info_->SetDrain(&context, request, &info);
  }
  grpc::Status Backup(const std::string& directory, v1::BackupResponse& response) {
    v1::BackupRequest request;
    request.set_directory(directory);
    grpc::ClientContext context;
    return info_->Backup(&context, request, &response);
  }
  v1::Job GetNow(const std::string& name) {
    v1::Job job;
    EXPECT_TRUE(Get(name, job).ok());
    return job;
  }
  static v1::SubmitJobRequest TokenJobAfter(const std::string& name, int num_rows) {
    v1::SubmitJobRequest request = TokenJob(num_rows);
    request.mutable_spec()->set_after_job(name);
    return request;
  }
  // A job in whose first sweep the engine waits.
  std::string StartHeldJob(int num_rows) {
    control_.HoldSweeps();
    const std::string name = Submit(TokenJob(num_rows)).name();
    control_.WaitForHeldSweep();
    return name;
  }
  size_t NumInputs() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& file :
         std::filesystem::directory_iterator(options_.state_directory + "/jobs")) {
      ++count;
    }
    return count;
  }
  static std::vector<std::string> IdsOf(const std::vector<v1::Result>& results) {
    std::vector<std::string> ids;
    for (const v1::Result& result : results) {
      ids.push_back(result.custom_id());
    }
    return ids;
  }
};

TEST_F(JobControlTest, APausedJobStopsAtASweepEdgeAndGoesOnAfterARestart) {
  const std::string name = StartHeldJob(40);
  control_.AllowSweeps(2);
  control_.WaitForHeldSweep();
  v1::Job job;
  ASSERT_TRUE(Pause(name, job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_PAUSED);
  ASSERT_TRUE(Pause(name, job).ok()) << "again";
  control_.ReleaseSweeps();
  const std::string other = Submit(TokenJob(5)).name();
  EXPECT_EQ(WaitForEnd(other).state(), v1::JOB_STATE_SUCCEEDED) << "others go on";
  const v1::Job paused = GetNow(name);
  EXPECT_EQ(paused.state(), v1::JOB_STATE_PAUSED);
  EXPECT_LT(paused.counts().succeeded(), 40);
  Restart();
  EXPECT_EQ(GetNow(name).state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(GetNow(name).counts().running(), 0);
  ASSERT_TRUE(Resume(name, job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  const ResultsRead read = Stream(name);
  EXPECT_EQ(read.end.counts().succeeded(), 40);
  EXPECT_THAT(read.results, SizeIs(40));
}

TEST_F(JobControlTest, AJobWhosePackIsAwayAtTheStartIsShownAsWaitingWithTheReason) {
  const std::string pack = folder_.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), pack, std::filesystem::copy_options::recursive);
  options_.models = {pack};
  Restart();
  const std::string name = StartHeldJob(3);
  v1::Job job;
  ASSERT_TRUE(Pause(name, job).ok());
  control_.ReleaseSweeps();
  server_.reset();
  std::filesystem::rename(pack, pack + ".away");
  Start();
  EXPECT_EQ(GetNow(name).waits_for_model(), "") << "a paused job does not ask for it";
  ASSERT_TRUE(Resume(name, job).ok());
  while (job.waits_for_model().empty()) {
    job = GetNow(name);
    ASSERT_EQ(job.counts().failed(), 0);
  }
  EXPECT_THAT(job.waits_for_model(), HasSubstr(pack + "/manifest.json"));
  EXPECT_EQ(List({}).jobs(0).waits_for_model(), job.waits_for_model());
  v1::Job refused;
  EXPECT_THAT(Submit(TokenJob(1), refused),
              Refuses(StatusCode::FAILED_PRECONDITION, "MODEL_UNAVAILABLE"));
  server_.reset();
  std::filesystem::rename(pack + ".away", pack);
  Start();
  EXPECT_EQ(WaitForEnd(name).counts().succeeded(), 3);
}

TEST_F(JobControlTest, PauseAndResumeRefuseWhatHasEndedAndWrongEtags) {
  const std::string name = Submit(TokenJob(1)).name();
  WaitForEnd(name);
  v1::Job job;
  EXPECT_THAT(Pause(name, job), Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
  EXPECT_THAT(Resume(name, job), Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
  EXPECT_THAT(Pause(name, job, "stale"), Refuses(StatusCode::ABORTED, "ETAG_MISMATCH"));
  EXPECT_THAT(Pause("jobs/none", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(Pause("none", job), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_THAT(Resume("jobs/none", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
}

TEST_F(JobControlTest, APausedJobCanBeCancelled) {
  const std::string name = StartHeldJob(10);
  v1::Job job;
  ASSERT_TRUE(Pause(name, job).ok());
  ASSERT_TRUE(Cancel(name, job).ok());
  control_.ReleaseSweeps();
  const ResultsRead read = Stream(name);
  EXPECT_EQ(read.end.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(read.results, SizeIs(10));
}

TEST_F(JobControlTest, RetriesTheRowsThatFailedButNotThoseThatNeverCanRun) {
  v1::SubmitJobRequest request = TokenJob(6);
  request.mutable_spec()->set_max_attempts(1);
  (*request.mutable_spec()->mutable_labels())["batch"] = "7";
  request.mutable_requests(2)->mutable_tokens()->set_ids(0, kPoisonToken);
  request.mutable_requests(4)->mutable_tokens()->set_ids(0, 1 << 20);  // no such token
  control_.HoldSweeps();
  const v1::Job old = Submit(request);
  control_.ReleaseSweeps();
  ASSERT_EQ(WaitForEnd(old.name()).state(), v1::JOB_STATE_SUCCEEDED);
  const int64_t failed = GetNow(old.name()).counts().failed();
  ASSERT_GE(failed, 2);
  v1::Job retry;
  const std::string id = MakeUuid(5);
  ASSERT_TRUE(Retry(old.name(), retry, id).ok());
  EXPECT_EQ(retry.retry_of(), old.name());
  EXPECT_EQ(retry.counts().total(), failed - 1);
  EXPECT_EQ(retry.spec().sampling().seed(), old.spec().sampling().seed());
  EXPECT_EQ(retry.labels().at("batch"), "7");
  v1::Job again;
  ASSERT_TRUE(Retry(old.name(), again, id).ok());
  EXPECT_EQ(again.name(), retry.name()) << "the same request_id";
  const std::vector<std::string> ids = IdsOf(Stream(retry.name()).results);
  EXPECT_THAT(ids, ::testing::Contains("row-2"));
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains("row-4")));
}

TEST_F(JobControlTest, RetriesWhatACancelledJobLeft) {
  const std::string name = StartHeldJob(30);
  v1::Job job;
  ASSERT_TRUE(Cancel(name, job).ok());
  control_.ReleaseSweeps();
  const v1::Job ended = WaitForEnd(name);
  v1::Job retry;
  ASSERT_TRUE(Retry(name, retry).ok());
  EXPECT_EQ(retry.counts().total(), ended.counts().cancelled());
  EXPECT_EQ(WaitForEnd(retry.name()).counts().succeeded(), retry.counts().total());
}

TEST_F(JobControlTest, RetriesLinesAsTheyStoodInTheFile) {
  control_.HoldSweeps();
  auto parts =
      UploadParts("\n{\"id\": \"a\", \"prompt\": [20]}\r\n{\"id\": \"b\", \"prompt\": [21]}");
  // With it neither ends in its first sweep.
  parts[0].mutable_header()->mutable_spec()->mutable_sampling()->set_seed(1);
  v1::Job job;
  ASSERT_TRUE(Upload(parts, job).ok());
  const std::string name = job.name();
  control_.WaitForHeldSweep();
  ASSERT_TRUE(Cancel(name, job).ok());
  control_.ReleaseSweeps();
  WaitForEnd(name);
  v1::Job retry;
  ASSERT_TRUE(Retry(name, retry).ok());
  EXPECT_THAT(IdsOf(Stream(retry.name()).results), ::testing::UnorderedElementsAre("a", "b"));
}

TEST_F(JobControlTest, RetryRefusesJobsThatRunOrHaveNothingToRetry) {
  v1::Job job;
  const std::string done = Submit(TokenJob(2)).name();
  WaitForEnd(done);
  const grpc::Status nothing = Retry(done, job);
  EXPECT_THAT(nothing, Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
  EXPECT_THAT(nothing.error_message(), HasSubstr("all of its 2 requests succeeded"));
  v1::SubmitJobRequest bad = TokenJob(2);
  bad.mutable_requests(1)->clear_input();
  const std::string refused = WaitForEnd(Submit(bad).name()).name();
  EXPECT_THAT(Retry(refused, job).error_message(), HasSubstr("1 failed requests were refused"));
  const std::string running = StartHeldJob(2);
  const grpc::Status not_ended = Retry(running, job);
  EXPECT_THAT(not_ended, Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
  EXPECT_THAT(not_ended.error_message(), HasSubstr("has not ended (running)"));
  EXPECT_THAT(Retry("jobs/none", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(Retry(done, job, "no uuid"), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(JobControlTest, DeletesAJobWithItsInputAndFreesItsNames) {
  v1::SubmitJobRequest request = TokenJob(5, "nightly");
  request.set_request_id(MakeUuid(1));
  const std::string name = Submit(request).name();
  WaitForEnd(name);
  ASSERT_TRUE(Delete(name).ok());
  v1::Job job;
  EXPECT_THAT(Get(name, job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(Stream(name).status, Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(List({}).jobs(), IsEmpty());
  EXPECT_THAT(Delete(name), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  v1::DeleteJobRequest missing;
  missing.set_name(name);
  missing.set_allow_missing(true);
  EXPECT_TRUE(Delete(missing).ok());
  EXPECT_EQ(Submit(request).counts().total(), 5);
  WaitForEnd(name);
  server_.reset();  // the janitor has ended
  Start();
  EXPECT_EQ(NumInputs(), 1U);
}

TEST_F(JobControlTest, ARunningJobIsDeletedOnlyByForceAndLeavesNothingBehind) {
  const std::string name = StartHeldJob(30);
  EXPECT_THAT(Delete(name), Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
  v1::DeleteJobRequest stale;
  stale.set_name(name);
  stale.set_force(true);
  stale.set_etag("stale");
  EXPECT_THAT(Delete(stale), Refuses(StatusCode::ABORTED, "ETAG_MISMATCH"));
  ASSERT_TRUE(Delete(name, /*force=*/true).ok());
  control_.ReleaseSweeps();
  EXPECT_EQ(WaitForEnd(Submit(TokenJob(20)).name()).counts().succeeded(), 20);
  Restart();
  EXPECT_THAT(List({}).jobs(), SizeIs(1));
}

TEST_F(JobControlTest, ADrainRefusesAndRunsNothingUntilItIsUndone) {
  const std::string name = StartHeldJob(30);
  v1::ServerInfo info;
  ASSERT_TRUE(SetDrain(true, info).ok());
  EXPECT_TRUE(info.draining());
  control_.ReleaseSweeps();
  v1::Job job;
  EXPECT_THAT(Submit(TokenJob(1), job), Refuses(StatusCode::UNAVAILABLE, "SERVER_DRAINED"));
  v1::WaitJobRequest wait;
  wait.set_name(name);
  wait.mutable_timeout()->set_nanos(50'000'000);
  ASSERT_TRUE(Wait(wait, job).ok()) << "reading goes on";
  EXPECT_LT(job.state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(SetDrain(true, info).ok()) << "again";
  ASSERT_TRUE(SetDrain(false, info).ok());
  EXPECT_FALSE(info.draining());
  EXPECT_EQ(WaitForEnd(name).counts().succeeded(), 30);
}

TEST_F(JobControlTest, ADrainOutlivesRestartsUntilItIsUndone) {
  const std::string name = StartHeldJob(30);
  v1::ServerInfo info;
  ASSERT_TRUE(SetDrain(true, info).ok());
  EXPECT_TRUE(GetNow(name).held());
  control_.ReleaseSweeps();
  Restart();
  const int64_t sweeps = control_.num_sweeps();
  v1::Job job;
  const grpc::Status refused = Submit(TokenJob(1), job);
  EXPECT_THAT(refused, Refuses(StatusCode::UNAVAILABLE, "SERVER_DRAINED"));
  EXPECT_THAT(refused.error_message(), HasSubstr("nightshift server drain --undo"));
  EXPECT_TRUE(GetNow(name).held());
  EXPECT_EQ(control_.num_sweeps(), sweeps);
  ASSERT_TRUE(SetDrain(false, info).ok());
  EXPECT_EQ(WaitForEnd(name).counts().succeeded(), 30);
  EXPECT_FALSE(GetNow(name).held());
  Restart();
  EXPECT_TRUE(Submit(TokenJob(1), job).ok()) << "undone is undone";
}

TEST_F(JobControlTest, ADrainThatCannotBeKeptChangesNothing) {
  // In the place of the file.
  ASSERT_TRUE(std::filesystem::create_directory(options_.state_directory + "/drained"));
  v1::ServerInfo info;
  const grpc::Status refused = SetDrain(true, info);
  EXPECT_EQ(refused.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr(options_.state_directory + "/drained"));
  EXPECT_EQ(WaitForEnd(Submit(TokenJob(3)).name()).counts().succeeded(), 3);
}

TEST_F(JobControlTest, AJobEndsWhenItIsCancelledWhileDraining) {
  const std::string name = StartHeldJob(30);
  v1::ServerInfo info;
  ASSERT_TRUE(SetDrain(true, info).ok());
  control_.ReleaseSweeps();
  v1::Job job;
  ASSERT_TRUE(Cancel(name, job).ok());
  EXPECT_EQ(WaitForEnd(name).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobControlTest, WhatHasFinishedStaysWhenTheWindowCloses) {
  control_.HoldSweeps();
  v1::SubmitJobRequest request = TokenJob(30);
  request.mutable_spec()->mutable_completion_window()->set_nanos(300'000'000);
  const v1::Job job = Submit(request);
  EXPECT_GE(job.expire_time().seconds(), job.create_time().seconds());
  control_.WaitForHeldSweep();
  control_.AllowSweeps(5);
  control_.WaitForHeldSweep();
  const int64_t finished = GetNow(job.name()).counts().succeeded();
  // The window closes while the engine is in a sweep.
  v1::WaitJobRequest wait;
  wait.set_name(job.name());
  wait.mutable_timeout()->set_nanos(400'000'000);
  v1::Job ended;
  ASSERT_TRUE(Wait(wait, ended).ok());
  control_.ReleaseSweeps();
  const ResultsRead read = Stream(job.name());
  EXPECT_EQ(read.end.state(), v1::JOB_STATE_EXPIRED);
  EXPECT_THAT(read.results, SizeIs(30));
  EXPECT_GE(read.end.counts().succeeded(), finished);
  EXPECT_GT(read.end.counts().expired(), 0);
  EXPECT_EQ(read.end.counts().succeeded() + read.end.counts().expired(), 30);
  for (const v1::Result& result : read.results) {
    if (result.has_error()) {
      EXPECT_EQ(result.error().code(), static_cast<int>(StatusCode::DEADLINE_EXCEEDED));
    }
  }
  v1::Job cancelled;
  EXPECT_THAT(Cancel(job.name(), cancelled),
              Refuses(StatusCode::FAILED_PRECONDITION, "STATE_CONFLICT"));
}

TEST_F(JobControlTest, AJobThatWaitsForItsTimeSaysSoAndRunsThen) {
  v1::SubmitJobRequest request = TokenJob(2);
  request.mutable_spec()->mutable_not_before()->set_seconds(4'000'000'000);
  const v1::Job waiting = Submit(request);
  EXPECT_EQ(waiting.next_run_time().seconds(), 4'000'000'000);
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch() + std::chrono::milliseconds(150));
  request.mutable_spec()->mutable_not_before()->set_seconds(now.count() / 1000);
  request.mutable_spec()->mutable_not_before()->set_nanos(
      static_cast<int32_t>(now.count() % 1000 * 1'000'000));
  const v1::Job soon = WaitForEnd(Submit(request).name());
  EXPECT_EQ(soon.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_GE(soon.start_time().seconds() * 1000 + soon.start_time().nanos() / 1'000'000,
            now.count());
  EXPECT_EQ(GetNow(waiting.name()).state(), v1::JOB_STATE_QUEUED);
}

int64_t Micros(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000 + time.nanos() / 1000;
}

TEST_F(JobControlTest, AJobRunsWhenTheOneBeforeItHasEnded) {
  const std::string first = StartHeldJob(6);
  const v1::Job second = Submit(TokenJobAfter(first, 3));
  EXPECT_EQ(second.waits_for(), first);
  EXPECT_EQ(second.spec().after_job(), first);
  control_.ReleaseSweeps();
  const v1::Job ended = WaitForEnd(second.name());
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ended.waits_for(), "");
  EXPECT_GE(Micros(ended.start_time()), Micros(GetNow(first).end_time()));
  EXPECT_EQ(WaitForEnd(Submit(TokenJobAfter(first, 1)).name()).state(), v1::JOB_STATE_SUCCEEDED)
      << "of one that has ended";
}

TEST_F(JobControlTest, AJobThatWaitsIsCheckedAndOutlivesARestartAndACancelledPredecessor) {
  const std::string first = StartHeldJob(6);
  v1::Job job;
  ASSERT_TRUE(Pause(first, job).ok());
  control_.ReleaseSweeps();
  const std::string second = Submit(TokenJobAfter(first, 3)).name();
  const std::string third = Submit(TokenJobAfter(second, 3)).name();
  Restart();
  EXPECT_EQ(WaitForEnd(Submit(TokenJob(2)).name()).state(), v1::JOB_STATE_SUCCEEDED);
  for (const auto& [name, waits_for] : {std::pair(second, first), std::pair(third, second)}) {
    EXPECT_EQ(GetNow(name).waits_for(), waits_for);
    EXPECT_EQ(GetNow(name).counts().pending(), 3);
    EXPECT_EQ(GetNow(name).state(), v1::JOB_STATE_QUEUED) << "checked before the job that ended";
  }
  ASSERT_TRUE(Cancel(first, job).ok());
  EXPECT_EQ(WaitForEnd(third).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(GetNow(first).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_GE(Micros(GetNow(third).start_time()), Micros(GetNow(second).end_time()));
}

TEST_F(JobControlTest, AJobWaitsForNoLaterJobOfTheSameName) {
  control_.HoldSweeps();
  const std::string first = Submit(TokenJob(4, "first")).name();
  const std::string second = Submit(TokenJobAfter(first, 3)).name();
  v1::Job job;
  ASSERT_TRUE(Pause(second, job).ok());
  EXPECT_EQ(job.waits_for(), first);
  ASSERT_TRUE(Delete(first, /*force=*/true).ok());
  EXPECT_EQ(GetNow(second).waits_for(), "");
  v1::SubmitJobRequest again = TokenJobAfter(second, 4);
  again.set_job_id("first");
  EXPECT_EQ(Submit(again).waits_for(), second);
  EXPECT_EQ(GetNow(second).waits_for(), "") << "no circle";
  control_.ReleaseSweeps();
  ASSERT_TRUE(Resume(second, job).ok());
  EXPECT_EQ(WaitForEnd(first).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(GetNow(second).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobControlTest, AJobToRunAfterMustBeThereUnlessTheSubmissionWasAcceptedBefore) {
  v1::Job job;
  EXPECT_THAT(Submit(TokenJobAfter("jobs/none", 1), job),
              Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  EXPECT_THAT(Submit(TokenJobAfter("none", 1), job),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  v1::SubmitJobRequest itself = TokenJobAfter("jobs/self", 1);
  itself.set_job_id("self");
  EXPECT_THAT(Submit(itself, job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
  const std::string first = Submit(TokenJob(1)).name();
  v1::SubmitJobRequest nightly = TokenJobAfter(first, 1);
  nightly.set_request_id(MakeUuid(1));
  const v1::Job accepted = Submit(nightly);
  WaitForEnd(first);
  ASSERT_TRUE(Delete(first).ok());
  EXPECT_EQ(Submit(nightly).name(), accepted.name());
}

TEST_F(JobControlTest, ARetryWaitsAsTheJobDid) {
  const std::string first = StartHeldJob(6);
  const std::string second = Submit(TokenJobAfter(first, 3)).name();
  v1::Job job;
  ASSERT_TRUE(Cancel(second, job).ok());
  control_.AllowHeldSweep();
  EXPECT_EQ(WaitForEnd(second).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Retry(second, job).ok());
  EXPECT_EQ(job.waits_for(), first);
  control_.ReleaseSweeps();
  EXPECT_EQ(WaitForEnd(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(Delete(first).ok());
  ASSERT_TRUE(Retry(second, job).ok()) << "the other is gone";
  EXPECT_EQ(WaitForEnd(job.name()).counts().succeeded(), 3);
}

TEST_F(JobControlTest, TimesOfASpecAreChecked) {
  const auto violations = [this](auto change) {
    v1::SubmitJobRequest request = TokenJob(1);
    change(*request.mutable_spec());
    v1::Job job;
    return DetailsOf(Submit(request, job)).violations;
  };
  EXPECT_THAT(violations([](v1::JobSpec& spec) { spec.mutable_completion_window(); }),
              ElementsAre("spec.completion_window"));
  EXPECT_THAT(violations([](v1::JobSpec& spec) {
                spec.mutable_completion_window()->set_seconds(INT64_MAX);
              }),
              ElementsAre("spec.completion_window"));
  EXPECT_THAT(violations([](v1::JobSpec& spec) { spec.mutable_not_before()->set_seconds(-1); }),
              ElementsAre("spec.not_before"));
  EXPECT_THAT(violations([](v1::JobSpec& spec) {
                spec.mutable_completion_window()->set_seconds(3600);
                spec.mutable_not_before()->set_seconds(RealClock().WallMicros() / 1'000'000 + 7200);
              }),
              ElementsAre("spec.completion_window"))
      << "no request could run";
  EXPECT_THAT(violations([](v1::JobSpec& spec) { spec.set_run_window("at night"); }),
              ElementsAre("spec.run_window"));
  v1::SubmitJobRequest request = TokenJob(1);
  request.mutable_spec()->set_run_window("00:00-23:59 UTC");
  EXPECT_EQ(Submit(request).spec().run_window(), "00:00-23:59 UTC");
  request.mutable_spec()->set_run_window("22:00-06:00");
  EXPECT_GT(Submit(request).spec().run_window().size(), 12U) << "with the daemon's zone";
}

TEST_F(JobControlTest, StreamsInTheOrderOfTheInput) {
  v1::SubmitJobRequest request = TokenJob(30);
  for (int i = 0; i < 30; ++i) {  // later rows are shorter, and end sooner
    request.mutable_requests(i)->mutable_sampling()->set_max_output_tokens(1 + (30 - i) % 7);
  }
  const std::string name = Submit(request).name();
  v1::StreamResultsRequest stream;
  stream.set_name(name);
  stream.set_order(v1::RESULT_ORDER_INPUT);
  stream.set_follow(true);
  stream.set_max_batch_bytes(100);
  ResultsRead read = Stream(stream);
  ASSERT_TRUE(read.ended) << read.status.error_message();
  ASSERT_THAT(read.results, SizeIs(30));
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(read.results[static_cast<size_t>(i)].index(), i);
  }
  stream.set_after_seq(28);
  read = Stream(stream);
  EXPECT_THAT(IdsOf(read.results), ElementsAre("row-28", "row-29"));
  stream.set_after_seq(31);
  EXPECT_THAT(Stream(stream).status, Refuses(StatusCode::OUT_OF_RANGE, "SEQ_AHEAD"));
}

TEST_F(JobControlTest, AStreamInInputOrderHoldsBackWhatComesTooSoon) {
  control_.HoldSweeps();
  v1::SubmitJobRequest request = TokenJob(3);
  request.mutable_requests(1)->mutable_sampling()->set_max_output_tokens(1);
  request.mutable_requests(0)->mutable_sampling()->set_max_output_tokens(200);
  // With a drawn seed row 2 would now and then end in the first sweep, too.
  request.mutable_spec()->mutable_sampling()->set_seed(1);
  const std::string name = Submit(request).name();
  v1::WaitJobRequest wait;
  wait.set_name(name);
  wait.set_results(1);
  control_.WaitForHeldSweep();
  control_.AllowSweeps(1);
  v1::Job job;
  ASSERT_TRUE(Wait(wait, job).ok());
  ASSERT_EQ(job.last_seq(), 1);
  v1::StreamResultsRequest stream;
  stream.set_name(name);
  stream.set_order(v1::RESULT_ORDER_INPUT);
  const ResultsRead read = Stream(stream);
  EXPECT_TRUE(read.ended);
  EXPECT_THAT(read.results, IsEmpty()) << "row 0 is not there";
  stream.set_after_seq(1);
  EXPECT_THAT(Stream(stream).status, Refuses(StatusCode::OUT_OF_RANGE, "SEQ_AHEAD"));
}

TEST_F(JobControlTest, ListsByLabelAndTime) {
  v1::SubmitJobRequest request = TokenJob(1, "a");
  (*request.mutable_spec()->mutable_labels())["team"] = "blue";
  const v1::Job a = Submit(request);
  request.set_job_id("b");
  (*request.mutable_spec()->mutable_labels())["team"] = "red";
  Submit(request);
  Submit(TokenJob(1, "c"));
  const auto names = [this](const v1::ListJobsRequest& list) {
    std::vector<std::string> found;
    const v1::ListJobsResponse page = List(list);
    for (const v1::Job& job : page.jobs()) {
      found.push_back(job.name());
    }
    return found;
  };
  v1::ListJobsRequest list;
  list.set_label("team=blue");
  EXPECT_THAT(names(list), ElementsAre("jobs/a"));
  list.set_label("team");
  EXPECT_THAT(names(list), ElementsAre("jobs/b", "jobs/a"));
  list.set_label("");
  list.mutable_created_before()->set_seconds(a.create_time().seconds() - 10);
  EXPECT_THAT(names(list), IsEmpty());
  list.clear_created_before();
  list.mutable_created_from()->set_seconds(a.create_time().seconds() - 10);
  EXPECT_THAT(names(list), SizeIs(3));
}

TEST_F(JobControlTest, APageTokenIsOfItsListAlone) {
  for (const char* id : {"a", "b", "c"}) {
    Submit(TokenJob(1, id));
  }
  v1::ListJobsRequest list;
  list.set_page_size(2);
  list.set_page_token(List(list).next_page_token());
  ASSERT_FALSE(list.page_token().empty());
  EXPECT_THAT(List(list).jobs(), SizeIs(1));
  list.set_label("team");
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  EXPECT_THAT(jobs_->ListJobs(&context, list, &response),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(JobControlTest, ABackupTakenWhileJobsRunIsAStateDirectory) {
  const std::string done = Submit(TokenJob(10)).name();
  WaitForEnd(done);
  const std::string running = StartHeldJob(20);
  const std::string target = folder_.path() + "/backup";
  v1::BackupResponse copied;
  const grpc::Status status = Backup(target, copied);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(copied.jobs(), 2);
  EXPECT_GT(copied.bytes(), 0);
  EXPECT_THAT(Backup(target, copied), Refuses(StatusCode::ALREADY_EXISTS, "TARGET_EXISTS"));
  for (const char* inside : {"/backup", "/jobs/../backup", "/none/backup"}) {
    EXPECT_THAT(Backup(options_.state_directory + inside, copied),
                Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"))
        << "inside of what it copies";
  }
  EXPECT_THAT(Backup("relative", copied), Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
  EXPECT_EQ(Backup(folder_.path() + "/none/backup", copied).error_code(),
            StatusCode::FAILED_PRECONDITION);
  control_.ReleaseSweeps();
  ASSERT_TRUE(Delete(done).ok());
  server_.reset();
  options_.state_directory = target;
  Start();
  EXPECT_THAT(Stream(done).results, SizeIs(10)) << "deleted behind the backup's back";
  EXPECT_EQ(WaitForEnd(running).counts().succeeded(), 20);
}

TEST_F(JobControlTest, ResultsThatAreNotKeptAnyMoreAreSaidToBe) {
  const std::string name = Submit(TokenJob(3)).name();
  WaitForEnd(name);
  server_.reset();
  {
    auto store = SqliteJobStore::Open({.path = options_.state_directory + "/store.sqlite"});
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Begin().ok());
    ASSERT_TRUE((*store)->PurgeResults(name.substr(5)).ok());
    ASSERT_TRUE((*store)->Commit().ok());
  }
  Start();
  EXPECT_THAT(Stream(name).status, Refuses(StatusCode::FAILED_PRECONDITION, "RESULTS_EXPIRED"));
  v1::Job job;
  EXPECT_THAT(Retry(name, job), Refuses(StatusCode::FAILED_PRECONDITION, "RESULTS_EXPIRED"));
  EXPECT_TRUE(GetNow(name).results_expired());
  EXPECT_EQ(GetNow(name).counts().succeeded(), 3);
  EXPECT_EQ(NumInputs(), 0U);
}

}  // namespace
}  // namespace nightshift
