// Every method of every service, by every role, for every tenant. The methods come from the
// services' descriptors: one that no table has fails here.
#include "server/rpc/authorization.h"

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "engine/policy/hardware_file.h"
#include "server/security/access_list.h"
#include "tests/server/rpc/service_world.h"
#include "tests/support/plain_machines.h"
#include "tests/support/status_matchers.h"

#include "google/protobuf/empty.pb.h"

namespace nightshift {
namespace {

using ::google::protobuf::Message;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::MethodDescriptor;
using ::grpc::StatusCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

const std::map<std::string, Role>& ExpectedRoles() {
  static const std::map<std::string, Role> roles = {
      {"nightshift.v1.JobService/SubmitJob", Role::kSubmitter},
      {"nightshift.v1.JobService/SubmitJobStream", Role::kSubmitter},
      {"nightshift.v1.JobService/GetUploadStatus", Role::kSubmitter},
      {"nightshift.v1.JobService/GetJob", Role::kReader},
      {"nightshift.v1.JobService/ListJobs", Role::kReader},
      {"nightshift.v1.JobService/WaitJob", Role::kReader},
      {"nightshift.v1.JobService/StreamResults", Role::kReader},
      {"nightshift.v1.JobService/CancelJob", Role::kSubmitter},
      {"nightshift.v1.JobService/PauseJob", Role::kSubmitter},
      {"nightshift.v1.JobService/ResumeJob", Role::kSubmitter},
      {"nightshift.v1.JobService/RetryFailed", Role::kSubmitter},
      {"nightshift.v1.JobService/DeleteJob", Role::kSubmitter},
      {"nightshift.v1.JobService/GetPolicy", Role::kReader},
      {"nightshift.v1.JobService/ExplainPolicy", Role::kReader},
      {"nightshift.v1.JobService/CutDocument", Role::kSubmitter},
      {"nightshift.v1.ServerService/GetServerInfo", Role::kReader},
      {"nightshift.v1.ServerService/ListModels", Role::kReader},
      {"nightshift.v1.ServerService/GetModel", Role::kReader},
      {"nightshift.v1.ServerService/DumpTimeline", Role::kAdmin},
      {"nightshift.v1.ServerService/SetDrain", Role::kAdmin},
      {"nightshift.v1.ServerService/Backup", Role::kAdmin}};
  return roles;
}

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto* file : {v1::Job::descriptor()->file(), v1::ServerInfo::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        methods.push_back(file->service(i)->method(j));
      }
    }
  }
  return methods;
}

std::string NameOf(const MethodDescriptor& method) {
  return absl::StrCat(method.service()->full_name(), "/", method.name());
}

// Who calls: acme and bolt are tenants, each with a token for each role.
const char* const kTenants[] = {"acme", "bolt"};
const Role kRoles[] = {Role::kReader, Role::kSubmitter, Role::kAdmin};

std::string TokenOf(const std::string& tenant, Role role) {
  return absl::StrCat("token of ", tenant, " ", RoleName(role));
}

class AuthorizationTest : public ServiceWorld {
 protected:
  AuthorizationTest() {
    options_.access_file = folder_.path() + "/access";
    std::string text;
    for (const char* tenant : kTenants) {
      for (const Role role : kRoles) {
        absl::StrAppend(
            &text,
            AccessLine(TokenOf(tenant, role), {.tenant = tenant, .role = role}, kNeverExpires),
            "\n");
      }
    }
    absl::StrAppend(&text, AccessLine("old", {.tenant = "acme"}, 1'000'000), "\n");
    WriteAccessFile(text);
    Restart();
  }

  void WriteAccessFile(const std::string& text) {
    std::ofstream(options_.access_file) << text;
    ASSERT_EQ(::chmod(options_.access_file.c_str(), 0600), 0);
  }

  static void Show(const std::optional<std::string>& token, grpc::ClientContext& context) {
    if (token.has_value()) {
      context.AddMetadata("authorization", absl::StrCat("Bearer ", *token));
    }
  }

  // Any method, whatever streams it has: sends one message, reads to the end.
  grpc::Status Call(const MethodDescriptor& method, const Message& request,
                    const std::optional<std::string>& token) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    Show(token, context);
    grpc::CompletionQueue queue;
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const auto stream = stub.PrepareCall(&context, absl::StrCat("/", NameOf(method)), &queue);
    stream->StartCall(nullptr);
    wait();
    const grpc::Slice bytes(request.SerializeAsString());
    const grpc::ByteBuffer message(&bytes, 1);
    stream->WriteLast(message, grpc::WriteOptions(), nullptr);
    wait();
    grpc::ByteBuffer answer;
    do {
      stream->Read(&answer, nullptr);
    } while (wait());
    grpc::Status status;
    stream->Finish(&status, nullptr);
    wait();
    return status;
  }
  grpc::Status Call(const MethodDescriptor& method, const std::optional<std::string>& token) {
    return Call(method, *NewRequest(method), token);
  }
  static std::unique_ptr<Message> NewRequest(const MethodDescriptor& method) {
    return std::unique_ptr<Message>(
        MessageFactory::generated_factory()->GetPrototype(method.input_type())->New());
  }

  v1::Job SubmitFor(const std::string& tenant, const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    Show(TokenOf(tenant, Role::kSubmitter), context);
    v1::Job job;
    const grpc::Status status = jobs_->SubmitJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  grpc::Status ListFor(const std::string& tenant, const v1::ListJobsRequest& request,
                       v1::ListJobsResponse& response) {
    grpc::ClientContext context;
    Show(TokenOf(tenant, Role::kReader), context);
    return jobs_->ListJobs(&context, request, &response);
  }
};

TEST_F(AuthorizationTest, EachMethodIsForItsRoleAndThoseAbove) {
  for (const MethodDescriptor* method : AllMethods()) {
    const std::string name = NameOf(*method);
    SCOPED_TRACE(name);
    ASSERT_EQ(ExpectedRoles().count(name), 1) << "a new method: say which role it is for";
    const Role least = ExpectedRoles().at(name);
    EXPECT_EQ(LeastRole(name), least);
    for (const char* tenant : kTenants) {
      for (const Role role : kRoles) {
        SCOPED_TRACE(absl::StrCat(tenant, " ", RoleName(role)));
        const grpc::Status status = Call(*method, TokenOf(tenant, role));
        EXPECT_NE(status.error_code(), StatusCode::UNAUTHENTICATED);
        EXPECT_NE(status.error_code(), StatusCode::UNIMPLEMENTED);
        if (role < least) {
          EXPECT_THAT(status, Refuses(StatusCode::PERMISSION_DENIED, "ROLE_TOO_LOW"));
          EXPECT_THAT(status.error_message(), StartsWith("nightshift ")) << "what people type";
          EXPECT_THAT(status.error_message(), HasSubstr(" is for role "));
          EXPECT_EQ(DetailsOf(status).metadata["method"], name);
          EXPECT_EQ(DetailsOf(status).metadata["least_role"], RoleName(least));
        } else {
          EXPECT_NE(status.error_code(), StatusCode::PERMISSION_DENIED) << status.error_message();
        }
      }
    }
  }
  EXPECT_EQ(AllMethods().size(), ExpectedRoles().size());
}

// A plan is for what all tenants have queued: how much that is, is nobody's but an administrator's.
TEST_F(AuthorizationTest, OnlyAdminsAreToldOfTheWorkOfAll) {
  options_.hardware = folder_.path() + "/box.json";
  ASSERT_TRUE(StoreHardwareProfile(options_.hardware, PlainBox()).ok());
  Restart();
  control_.HoldSweeps();
  grpc::ClientContext context;
  Show(TokenOf("bolt", Role::kSubmitter), context);
  v1::Job job;
  ASSERT_TRUE(jobs_->SubmitJob(&context, TokenJob(20), &job).ok());
  control_.WaitForHeldSweep();
  for (const Role role : kRoles) {
    SCOPED_TRACE(RoleName(role));
    const bool is_admin = role == Role::kAdmin;
    grpc::ClientContext shows;
    Show(TokenOf("acme", role), shows);
    v1::Policy policy;
    ASSERT_TRUE(jobs_->GetPolicy(&shows, {}, &policy).ok());
    grpc::ClientContext explains;
    Show(TokenOf("acme", role), explains);
    v1::ExplainPolicyResponse explained;
    ASSERT_TRUE(jobs_->ExplainPolicy(&explains, {}, &explained).ok());
    for (const v1::Policy& told : {policy, explained.policy()}) {
      EXPECT_TRUE(told.planned()) << told.reason();
      EXPECT_GT(told.tokens_per_s(), 0.0);
      EXPECT_EQ(told.requests(), is_admin ? 20 : 0);
      EXPECT_EQ(told.prompt_tokens() > 0.0, is_admin);
      EXPECT_EQ(told.output_tokens() > 0.0, is_admin);
      EXPECT_EQ(told.seconds() > 0.0, is_admin);
    }
    // Of one's own workload everything is told.
    grpc::ClientContext asks;
    Show(TokenOf("acme", role), asks);
    v1::ExplainPolicyRequest request;
    request.set_requests(1000);
    request.set_prompt_tokens(30);
    request.set_output_tokens(30);
    ASSERT_TRUE(jobs_->ExplainPolicy(&asks, request, &explained).ok());
    EXPECT_EQ(explained.policy().requests(), 1000);
    EXPECT_GT(explained.policy().seconds(), 0.0);
  }
  control_.ReleaseSweeps();
}

TEST_F(AuthorizationTest, NoMethodIsForWhoShowsNoGoodToken) {
  for (const MethodDescriptor* method : AllMethods()) {
    SCOPED_TRACE(NameOf(*method));
    EXPECT_THAT(Call(*method, std::nullopt),
                Refuses(StatusCode::UNAUTHENTICATED, "TOKEN_REQUIRED"));
    EXPECT_THAT(Call(*method, "guessed"), Refuses(StatusCode::UNAUTHENTICATED, "TOKEN_UNKNOWN"));
    EXPECT_THAT(Call(*method, ""), Refuses(StatusCode::UNAUTHENTICATED, "TOKEN_UNKNOWN"));
    EXPECT_THAT(Call(*method, "old"), Refuses(StatusCode::UNAUTHENTICATED, "TOKEN_EXPIRED"));
  }
}

TEST_F(AuthorizationTest, TellsWhoLacksATokenHowToGiveOne) {
  v1::Job job;
  EXPECT_THAT(Get("jobs/any", job).error_message(), HasSubstr("--token-file"));
}

TEST_F(AuthorizationTest, TakesOneTokenOfOneScheme) {
  const std::string token = TokenOf("acme", Role::kAdmin);
  const auto refusal = [&](const std::vector<std::string>& values) {
    grpc::ClientContext context;
    for (const std::string& value : values) {
      context.AddMetadata("authorization", value);
    }
    v1::ServerInfo info;
    return info_->GetServerInfo(&context, {}, &info);
  };
  const auto refused = Refuses(StatusCode::UNAUTHENTICATED, "TOKEN_UNKNOWN");
  EXPECT_TRUE(refusal({"bearer " + token}).ok());
  EXPECT_THAT(refusal({"Basic " + token}), refused);
  EXPECT_THAT(refusal({token}), refused);
  EXPECT_THAT(refusal({"Bearer " + token, "Bearer " + token}), refused);
  EXPECT_THAT(refusal({"Bearer guessed", "Bearer " + token}), refused);
}

// A connection is shared: a call without a token is nobody's, whoever called before.
TEST_F(AuthorizationTest, ACallIsWhoItsOwnTokenSays) {
  const std::string acme = SubmitFor("acme", TokenJob(1)).name();
  v1::Job job;
  EXPECT_THAT(Get(acme, job), Refuses(StatusCode::UNAUTHENTICATED, "TOKEN_REQUIRED"));
  v1::ListJobsResponse jobs;
  EXPECT_TRUE(ListFor("bolt", {}, jobs).ok());
  EXPECT_THAT(jobs.jobs(), IsEmpty());
  EXPECT_TRUE(ListFor("acme", {}, jobs).ok());
  EXPECT_THAT(jobs.jobs(), SizeIs(1));
  EXPECT_EQ(jobs.jobs(0).tenant(), "acme");
}

// Each method that takes the name of a job, in whatever field, by the other tenant's admin: the
// answer is to the letter that for a job that does not exist.
TEST_F(AuthorizationTest, AnotherTenantsJobIsAnUnknownOne) {
  const std::string acme = SubmitFor("acme", TokenJob(1, "of-acme")).name();
  v1::WaitJobRequest wait;
  wait.set_name(acme);
  grpc::ClientContext wait_context;
  Show(TokenOf("acme", Role::kReader), wait_context);
  v1::Job ended;
  ASSERT_TRUE(jobs_->WaitJob(&wait_context, wait, &ended).ok());
  int num_methods = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    for (const char* field_name : {"name", "job"}) {
      const auto* field = method->input_type()->FindFieldByName(field_name);
      if (field == nullptr || method->name() == "GetModel") {
        continue;
      }
      SCOPED_TRACE(NameOf(*method));
      ++num_methods;
      const auto ask = [&](const std::string& job, const char* tenant) {
        const std::unique_ptr<Message> request = NewRequest(*method);
        request->GetReflection()->SetString(request.get(), field, job);
        return Call(*method, *request, TokenOf(tenant, Role::kAdmin));
      };
      const grpc::Status foreign = ask(acme, "bolt");
      EXPECT_THAT(foreign, Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
      const grpc::Status unknown = ask("jobs/no-job", "bolt");
      EXPECT_EQ(absl::StrReplaceAll(foreign.error_message(), {{"of-acme", "no-job"}}),
                unknown.error_message());
      // A key of the store is no name.
      EXPECT_THAT(ask("jobs/acme/of-acme", "bolt"),
                  Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
      // DeleteJob goes last: it needs no other.
      if (method->name() != "DeleteJob") {
        EXPECT_NE(ask(acme, "acme").error_code(), StatusCode::NOT_FOUND);
      }
    }
  }
  EXPECT_GE(num_methods, 10);
}

TEST_F(AuthorizationTest, AJobWaitsForJobsOfItsTenantOnly) {
  SubmitFor("acme", TokenJob(1, "first"));
  v1::SubmitJobRequest after = TokenJob(1);
  after.mutable_spec()->set_after_job("jobs/first");
  EXPECT_EQ(SubmitFor("acme", after).tenant(), "acme");
  grpc::ClientContext context;
  Show(TokenOf("bolt", Role::kSubmitter), context);
  v1::Job job;
  EXPECT_THAT(jobs_->SubmitJob(&context, after, &job),
              Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
}

TEST_F(AuthorizationTest, IdsAreATenantsOwn) {
  v1::SubmitJobRequest request = TokenJob(2, "nightly");
  request.set_request_id(MakeUuid(1));
  const v1::Job acme = SubmitFor("acme", request);
  request.mutable_requests(0)->mutable_tokens()->add_ids(7);
  const v1::Job bolt = SubmitFor("bolt", request);
  EXPECT_EQ(acme.name(), "jobs/nightly");
  EXPECT_EQ(bolt.name(), "jobs/nightly");
  EXPECT_NE(acme.uid(), bolt.uid());
  EXPECT_EQ(SubmitFor("bolt", request).uid(), bolt.uid());
  Restart();
  v1::ListJobsResponse jobs;
  EXPECT_TRUE(ListFor("acme", {}, jobs).ok());
  ASSERT_THAT(jobs.jobs(), SizeIs(1));
  EXPECT_EQ(jobs.jobs(0).uid(), acme.uid());
}

TEST_F(AuthorizationTest, ResultsAreATenantsOwn) {
  const std::string name = SubmitFor("acme", TokenJob(3, "nightly")).name();
  SubmitFor("bolt", TokenJob(1, "nightly"));
  grpc::ClientContext context;
  Show(TokenOf("acme", Role::kReader), context);
  v1::StreamResultsRequest request;
  request.set_name(name);
  request.set_follow(true);
  const auto reader = jobs_->StreamResults(&context, request);
  v1::ResultBatch batch;
  int num_results = 0;
  while (reader->Read(&batch)) {
    num_results += batch.results_size();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(num_results, 3);
}

TEST_F(AuthorizationTest, AnUploadIsATenantsOwn) {
  const std::vector<v1::SubmitJobStreamRequest> parts =
      UploadParts("{\"id\": \"a\", \"prompt\": [1, 2, 3]}\n", 8);
  const auto send = [&](const char* tenant, size_t count, v1::Job& job) {
    grpc::ClientContext context;
    Show(TokenOf(tenant, Role::kSubmitter), context);
    const auto writer = jobs_->SubmitJobStream(&context, &job);
    for (size_t i = 0; i < count; ++i) {
      writer->Write(parts[i]);
    }
    writer->WritesDone();
    return writer->Finish();
  };
  v1::Job job;
  EXPECT_THAT(send("acme", 3, job), Refuses(StatusCode::ABORTED, "UPLOAD_INCOMPLETE"));
  const auto kept = [&](const char* tenant) {
    grpc::ClientContext context;
    Show(TokenOf(tenant, Role::kSubmitter), context);
    v1::GetUploadStatusRequest request;
    request.set_request_id(parts[0].header().request_id());
    v1::UploadStatus status;
    const grpc::Status told = jobs_->GetUploadStatus(&context, request, &status);
    return told.ok() ? status.committed_bytes() : -static_cast<int64_t>(told.error_code());
  };
  EXPECT_EQ(kept("acme"), 16);
  EXPECT_EQ(kept("bolt"), -static_cast<int64_t>(StatusCode::NOT_FOUND));
  EXPECT_TRUE(send("bolt", parts.size(), job).ok());
  EXPECT_EQ(job.tenant(), "bolt");
  Restart();
  EXPECT_EQ(kept("acme"), 16);
}

TEST_F(AuthorizationTest, APageTokenIsATenantsOwn) {
  for (const char* tenant : kTenants) {
    SubmitFor(tenant, TokenJob(1));
    SubmitFor(tenant, TokenJob(1));
  }
  v1::ListJobsRequest request;
  request.set_page_size(1);
  v1::ListJobsResponse page;
  EXPECT_TRUE(ListFor("acme", request, page).ok());
  request.set_page_token(page.next_page_token());
  ASSERT_FALSE(request.page_token().empty());
  EXPECT_TRUE(ListFor("acme", request, page).ok());
  EXPECT_THAT(ListFor("bolt", request, page),
              Refuses(StatusCode::INVALID_ARGUMENT, "FIELD_INVALID"));
}

TEST_F(AuthorizationTest, AReloadedFileHoldsFromTheNextCallOn) {
  const auto info = [this](const std::string& token) {
    grpc::ClientContext context;
    Show(token, context);
    v1::ServerInfo told;
    return info_->GetServerInfo(&context, {}, &told).error_code();
  };
  const std::string token = TokenOf("acme", Role::kReader);
  EXPECT_EQ(info(token), StatusCode::OK);
  WriteAccessFile("nonsense\n");
  server_->Reload();
  EXPECT_EQ(info(token), StatusCode::OK);
  WriteAccessFile(AccessLine("next", {.tenant = "acme", .role = Role::kReader}, kNeverExpires));
  server_->Reload();
  EXPECT_EQ(info(token), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(info("next"), StatusCode::OK);
}

// Who looks after the daemon asks for its health without a token; which methods it has is told to
// nobody.
TEST_F(AuthorizationTest, HealthIsForAllAndReflectionForNone) {
  grpc::GenericStub stub(channel_);
  const auto ask = [&](const std::string& method) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice empty;
    const auto reader =
        stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&empty, 1), &queue);
    reader->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    reader->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status.error_code();
  };
  EXPECT_EQ(ask("/grpc.health.v1.Health/Check"), StatusCode::OK);
  EXPECT_EQ(ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(AuthorizationTest, WithoutAnAccessFileAllAreAdminsOfOneTenant) {
  options_.access_file.clear();
  Restart();
  EXPECT_EQ(Submit(TokenJob(1)).tenant(), "default");
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(info_->SetDrain(&context, {}, &info).ok());
}

}  // namespace
}  // namespace nightshift
