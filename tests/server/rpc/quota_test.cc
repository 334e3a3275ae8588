// Quotas of tenants, through a whole server.
#include "server/security/quota.h"

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "server/security/access_list.h"
#include "tests/server/rpc/service_world.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::grpc::StatusCode;
using ::testing::HasSubstr;

TEST(QuotaTest, ReadsWhatALineNamesAndLimitsNothingElse) {
  const auto list = AccessList::Parse(
      "quota * active-jobs=2\n"
      "quota acme queued-requests=10 stored-mib=5 submits-per-minute=6 streams=7 priority=low "
      "weight=0.5\n");
  ASSERT_OK(list);
  const Quota acme = list->QuotaOf("acme");
  EXPECT_EQ(acme.active_jobs, kNoQuota);
  EXPECT_EQ(acme.queued_requests, 10);
  EXPECT_EQ(acme.stored_mib, 5);
  EXPECT_EQ(acme.submits_per_minute, 6);
  EXPECT_EQ(acme.streams, 7);
  EXPECT_EQ(acme.priority, v1::PRIORITY_LOW);
  EXPECT_EQ(acme.weight, 0.5);
  EXPECT_EQ(list->QuotaOf("bolt").active_jobs, 2);
  EXPECT_EQ(list->QuotaOf("bolt").priority, v1::PRIORITY_HIGH);
}

TEST(QuotaTest, NamesTheWrongLineAndKey) {
  const auto error_of = [](const std::string& line) {
    return std::string(AccessList::Parse("\n" + line).status().message());
  };
  EXPECT_THAT(error_of("quota acme jobs=1"),
              HasSubstr("line 2 has a key that is none of active-jobs"));
  EXPECT_THAT(error_of("quota acme active-jobs=0"), HasSubstr("line 2 has a active-jobs"));
  EXPECT_THAT(error_of("quota acme active-jobs=many"), HasSubstr("active-jobs"));
  EXPECT_THAT(error_of("quota acme streams=1 streams=2"), HasSubstr("streams twice"));
  EXPECT_THAT(error_of("quota acme priority=urgent"), HasSubstr("low, normal, high"));
  EXPECT_THAT(error_of("quota acme weight=0"), HasSubstr("weight"));
  EXPECT_THAT(error_of("quota acme weight=nan"), HasSubstr("weight"));
  EXPECT_THAT(error_of("quota A streams=1"), HasSubstr("tenant"));
  EXPECT_THAT(error_of("quota"), HasSubstr("tenant"));
  EXPECT_THAT(error_of("quota acme streams=1\nquota acme streams=1"), HasSubstr("line 3"));
}

class TenantQuotaTest : public ServiceWorld {
 protected:
  // With acme's quota; bolt has none.
  void StartWith(const std::string& quota) {
    options_.access_file = folder_.path() + "/access";
    std::string text = absl::StrCat("quota acme ", quota, "\n");
    for (const char* tenant : {"acme", "bolt"}) {
      absl::StrAppend(&text, AccessLine(tenant, {.tenant = tenant}, kNeverExpires), "\n");
    }
    std::ofstream(options_.access_file) << text;
    ASSERT_EQ(::chmod(options_.access_file.c_str(), 0600), 0);
    Restart();
  }
  static void Show(const std::string& tenant, grpc::ClientContext& context) {
    context.AddMetadata("authorization", "Bearer " + tenant);
  }
  grpc::Status SubmitFor(const std::string& tenant, const v1::SubmitJobRequest& request,
                         v1::Job* job = nullptr) {
    grpc::ClientContext context;
    Show(tenant, context);
    v1::Job unused;
    return jobs_->SubmitJob(&context, request, job == nullptr ? &unused : job);
  }
  v1::Job GetFor(const std::string& tenant, const std::string& name) {
    grpc::ClientContext context;
    Show(tenant, context);
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    const grpc::Status status = jobs_->GetJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  // The error names tenant, quota and limit, to people and programs.
  static void ExpectExceeded(const grpc::Status& status, const std::string& quota,
                             const std::string& limit) {
    EXPECT_THAT(status, Refuses(StatusCode::RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED"));
    EXPECT_THAT(status.error_message(), HasSubstr("tenant acme"));
    EXPECT_THAT(status.error_message(), HasSubstr(quota + " is " + limit));
    ErrorDetails details = DetailsOf(status);
    EXPECT_TRUE(details.has_retry);
    EXPECT_EQ(details.metadata["quota"], quota);
    EXPECT_EQ(details.metadata["limit"], limit);
    google::rpc::Status wire;
    ASSERT_TRUE(wire.ParseFromString(status.error_details()));
    google::rpc::QuotaFailure failure;
    for (const auto& any : wire.details()) {
      any.UnpackTo(&failure);
    }
    ASSERT_EQ(failure.violations_size(), 1);
    EXPECT_EQ(failure.violations(0).subject(), "tenant:acme");
  }
};

TEST_F(TenantQuotaTest, ActiveJobsAndQueuedRequestsAreBounded) {
  control_.HoldSweeps();
  StartWith("active-jobs=2 queued-requests=5");
  v1::Job first;
  ASSERT_TRUE(SubmitFor("acme", TokenJob(2), &first).ok());
  ExpectExceeded(SubmitFor("acme", TokenJob(4)), "queued-requests", "5");
  ASSERT_TRUE(SubmitFor("acme", TokenJob(3)).ok());
  ExpectExceeded(SubmitFor("acme", TokenJob(1)), "active-jobs", "2");
  EXPECT_TRUE(SubmitFor("bolt", TokenJob(9)).ok());
  // A preview makes no job.
  v1::SubmitJobRequest preview = TokenJob(1);
  preview.set_validate_only(true);
  EXPECT_TRUE(SubmitFor("acme", preview).ok());
  v1::DeleteJobRequest remove;
  remove.set_name(first.name());
  remove.set_force(true);
  grpc::ClientContext context;
  Show("acme", context);
  google::protobuf::Empty empty;
  ASSERT_TRUE(jobs_->DeleteJob(&context, remove, &empty).ok());
  EXPECT_TRUE(SubmitFor("acme", TokenJob(1)).ok());
}

TEST_F(TenantQuotaTest, StoredBytesAreBounded) {
  StartWith("stored-mib=1");
  v1::SubmitJobRequest large = TokenJob(1);
  large.mutable_requests(0)->set_prompt(std::string(600'000, 'x'));
  ASSERT_TRUE(SubmitFor("acme", large).ok());
  ExpectExceeded(SubmitFor("acme", large), "stored-mib", "1");
  EXPECT_TRUE(SubmitFor("acme", TokenJob(1)).ok());
}

TEST_F(TenantQuotaTest, SubmissionsAMinuteAreBounded) {
  StartWith("submits-per-minute=2");
  EXPECT_TRUE(SubmitFor("acme", TokenJob(1)).ok());
  EXPECT_TRUE(SubmitFor("acme", TokenJob(1)).ok());
  ExpectExceeded(SubmitFor("acme", TokenJob(1)), "submits-per-minute", "2");
  EXPECT_TRUE(SubmitFor("bolt", TokenJob(1)).ok());
}

TEST_F(TenantQuotaTest, CallsThatLastAreBounded) {
  control_.HoldSweeps();
  StartWith("streams=1");
  v1::Job job;
  ASSERT_TRUE(SubmitFor("acme", TokenJob(1), &job).ok());
  v1::StreamResultsRequest request;
  request.set_name(job.name());
  request.set_follow(true);
  auto open = std::make_unique<grpc::ClientContext>();
  Show("acme", *open);
  auto reader = jobs_->StreamResults(open.get(), request);
  reader->WaitForInitialMetadata();
  v1::WaitJobRequest wait;
  wait.set_name(job.name());
  const auto try_to_wait = [&] {
    grpc::ClientContext context;
    Show("acme", context);
    return jobs_->WaitJob(&context, wait, &job);
  };
  ExpectExceeded(try_to_wait(), "streams", "1");
  grpc::ClientContext upload;
  Show("acme", upload);
  const auto writer = jobs_->SubmitJobStream(&upload, &job);
  ExpectExceeded(writer->Finish(), "streams", "1");
  control_.ReleaseSweeps();
  v1::ResultBatch batch;
  while (reader->Read(&batch)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  // The place is free once the server is through with the call, which its client does not see.
  grpc::Status waited = try_to_wait();
  while (waited.error_code() == StatusCode::RESOURCE_EXHAUSTED) {
    waited = try_to_wait();
  }
  EXPECT_TRUE(waited.ok()) << waited.error_message();
}

// While both have rows that wait, three of acme's end for one of bolt's.
TEST_F(TenantQuotaTest, TenantsShareTheEngineByTheirWeights) {
  control_.HoldSweeps();
  StartWith("weight=3");
  v1::SubmitJobRequest blocker = TokenJob(8);  // as many as the engine holds
  blocker.mutable_spec()->mutable_sampling()->set_max_output_tokens(100);
  ASSERT_TRUE(SubmitFor("bolt", blocker).ok());
  control_.WaitForHeldSweep();
  v1::Job heavy;
  v1::Job light;
  ASSERT_TRUE(SubmitFor("acme", TokenJob(160), &heavy).ok());
  ASSERT_TRUE(SubmitFor("bolt", TokenJob(160), &light).ok());
  const auto sweep = [&] {
    control_.AllowHeldSweep();
    control_.WaitForHeldSweep();
    heavy = GetFor("acme", heavy.name());
    light = GetFor("bolt", light.name());
  };
  // Neither has run ahead when both are there.
  while (heavy.state() == v1::JOB_STATE_VALIDATING || light.state() == v1::JOB_STATE_VALIDATING) {
    heavy = GetFor("acme", heavy.name());
    light = GetFor("bolt", light.name());
  }
  while (heavy.counts().running() == 0 || light.counts().running() == 0) {
    sweep();
  }
  EXPECT_LT(heavy.counts().succeeded() + light.counts().succeeded(), 16);
  while (heavy.counts().succeeded() < 120) {
    sweep();
  }
  EXPECT_GE(light.counts().succeeded(), 30);
  EXPECT_LE(light.counts().succeeded(), 50);
  control_.ReleaseSweeps();
}

TEST_F(TenantQuotaTest, PriorityHasACeilingThatJobsOfNoPriorityKeepTo) {
  StartWith("priority=low");
  v1::SubmitJobRequest request = TokenJob(1);
  v1::Job job;
  ASSERT_TRUE(SubmitFor("acme", request, &job).ok());
  EXPECT_EQ(job.spec().priority(), v1::PRIORITY_LOW);
  request.mutable_spec()->set_priority(v1::PRIORITY_NORMAL);
  ExpectExceeded(SubmitFor("acme", request), "priority", "1");
  ASSERT_TRUE(SubmitFor("bolt", request, &job).ok());
  EXPECT_EQ(job.spec().priority(), v1::PRIORITY_NORMAL);
}

}  // namespace
}  // namespace nightshift
