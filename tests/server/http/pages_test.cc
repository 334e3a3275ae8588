// The pages of a whole daemon with the fake engine, as monitoring reads them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/file_descriptor.h"
#include "tests/server/rpc/service_world.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PagesTest : public ServiceWorld {
 protected:
  PagesTest() {
    server_.reset();
    options_.http_listen = "127.0.0.1:0";
    Start();
  }

  httplib::Result Page(const std::string& path) {
    httplib::Client client(server_->http_url());
    return client.Get(path);
  }
  std::string Metrics() {
    const httplib::Result page = Page("/metrics");
    EXPECT_TRUE(page);
    EXPECT_EQ(page->status, 200);
    EXPECT_EQ(page->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    return page->body;
  }
  // The value of a sample, by its name and labels as they are written.
  double Value(const std::string& page, const std::string& sample) {
    const size_t at = page.find("\n" + sample + " ");
    EXPECT_NE(at, std::string::npos) << sample << " is not in " << page;
    return at == std::string::npos ? -1 : std::stod(page.substr(at + sample.size() + 2));
  }
  bool IsServing(const std::string& service) {
    constexpr int32_t kServing = 1;
    grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(
        channel_);
    grpc::ClientContext context;
    google::protobuf::StringValue request;
    google::protobuf::Int32Value response;
    request.set_value(service);
    grpc::CompletionQueue queue;
    auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&response, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
    return response.value() == kServing;
  }
  void SetDrain(bool drain) {
    v1::SetDrainRequest request;
    request.set_drain(drain);
    v1::ServerInfo response;
    grpc::ClientContext context;
    EXPECT_TRUE(info_->SetDrain(&context, request, &response).ok());
  }
};

TEST_F(PagesTest, MetricsTellWhatAJobDid) {
  const std::string before = Metrics();
  EXPECT_EQ(Value(before, R"(nightshift_requests_total{outcome="succeeded"})"), 0);
  EXPECT_EQ(Value(before, "nightshift_last_publish_timestamp_seconds"), 0);
  const v1::Job job = WaitForEnd(Submit(TokenJob(20)).name());
  std::string page = Metrics();
  // Callers may hear of the end before the runner has looked at what is left.
  for (int i = 0; i < 1000 && Value(page, "nightshift_requests_runnable") != 0; ++i) {
    page = Metrics();
  }
  EXPECT_EQ(Value(page, R"(nightshift_requests_total{outcome="succeeded"})"), 20);
  EXPECT_EQ(Value(page, "nightshift_request_attempts_total"), 20);
  EXPECT_EQ(Value(page, "nightshift_request_queue_seconds_count"), 20);
  EXPECT_EQ(Value(page, "nightshift_request_seconds_count"), 20);
  EXPECT_EQ(Value(page, "nightshift_output_tokens_total"), job.tokens().output());
  EXPECT_EQ(Value(page, "nightshift_prompt_tokens_total"), 20 * 3);
  EXPECT_EQ(Value(page, "nightshift_sweep_seconds_count"), control_.num_sweeps());
  EXPECT_GT(Value(page, "nightshift_last_publish_timestamp_seconds"), 1e9);
  EXPECT_EQ(Value(page, R"(nightshift_jobs{state="succeeded"})"), 1);
  EXPECT_EQ(Value(page, R"(nightshift_requests_waiting{class="normal"})"), 0);
  EXPECT_EQ(Value(page, "nightshift_requests_runnable"), 0);
  EXPECT_EQ(Value(page, "nightshift_block_max_requests"), 8);
  EXPECT_GT(Value(page, "nightshift_store_commit_seconds_count"), 0);
  EXPECT_GT(Value(page, "nightshift_store_free_bytes"), 0);
  EXPECT_EQ(Value(page, R"(nightshift_models{state="ready"})"), 1);
}

TEST_F(PagesTest, MetricsTellWhatWaitsAndRuns) {
  control_.HoldSweeps();
  v1::SubmitJobRequest job = TokenJob(20);
  job.mutable_spec()->set_priority(v1::PRIORITY_HIGH);
  const std::string name = Submit(job).name();
  control_.WaitForHeldSweep();
  const std::string page = Metrics();
  EXPECT_EQ(Value(page, "nightshift_requests_runnable"), 20);
  EXPECT_EQ(Value(page, R"(nightshift_jobs{state="running"})"), 1);
  EXPECT_EQ(Value(page, "nightshift_job_oldest_waiting_seconds"), 0) << "it has begun";
  control_.ReleaseSweeps();
  WaitForEnd(name);
}

TEST_F(PagesTest, MetricsCountCallsByMethodAndCode) {
  v1::Job job;
  EXPECT_EQ(Get("jobs/nobody", job).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(IsServing(""));
  // The call is measured when gRPC drops it, which is after its answer.
  const std::string sample = R"(nightshift_rpc_seconds_count{code="NOT_FOUND",method="GetJob"} 1)";
  std::string page = Metrics();
  for (int i = 0; i < 1000 && page.find(sample) == std::string::npos; ++i) {
    page = Metrics();
  }
  EXPECT_THAT(page, HasSubstr(sample));
  EXPECT_THAT(page, HasSubstr(R"(nightshift_rpc_in_flight{method="GetJob"} 0)"));
  EXPECT_THAT(page, HasSubstr(R"(method="Check")"));
}

TEST_F(PagesTest, MetricsCountWhatFails) {
  control_.FailNextSweeps(
      {absl::InternalError("first"), absl::InternalError("second"), absl::InternalError("third")});
  v1::SubmitJobRequest job = TokenJob(1);
  WaitForEnd(Submit(job).name());
  const std::string page = Metrics();
  EXPECT_EQ(Value(page, "nightshift_sweep_failures_total"), 3);
  EXPECT_EQ(Value(page, "nightshift_requests_poisoned_total"), 1);
  EXPECT_EQ(Value(page, "nightshift_request_attempts_total"), 3);
  EXPECT_EQ(Value(page, R"(nightshift_requests_total{outcome="failed"})"), 1);
}

TEST_F(PagesTest, MetricsCountRowsThatNeverRun) {
  v1::SubmitJobRequest job = TokenJob(3);
  job.mutable_requests(1)->mutable_tokens()->mutable_ids()->Resize(100'000, 20);  // too long
  job.mutable_requests(2)->set_custom_id("row-0");                                // used before
  WaitForEnd(Submit(job).name());
  const std::string page = Metrics();
  EXPECT_EQ(Value(page, R"(nightshift_requests_total{outcome="failed"})"), 2);
  EXPECT_EQ(Value(page, R"(nightshift_requests_total{outcome="succeeded"})"), 1);
  EXPECT_EQ(Value(page, "nightshift_request_attempts_total"), 1);
}

TEST_F(PagesTest, MetricsHoldNothingOfCallers) {
  v1::SubmitJobRequest job = TokenJob(2, "canary-job");
  (*job.mutable_spec()->mutable_labels())["canary-label"] = "canary-value";
  job.mutable_requests(0)->set_custom_id("canary-row");
  WaitForEnd(Submit(job).name());
  EXPECT_THAT(Metrics(), Not(HasSubstr("canary")));
}

TEST_F(PagesTest, PromtoolTakesTheMetrics) {
  if (std::system("command -v promtool > /dev/null") != 0) {
    GTEST_SKIP() << "promtool is not here: apt-get install prometheus";
  }
  WaitForEnd(Submit(TokenJob(3)).name());
  const std::string path = folder_.path() + "/metrics";
  std::ofstream(path) << Metrics();
  const std::string errors = folder_.path() + "/errors";
  const int code =
      std::system(absl::StrCat("promtool check metrics < ", path, " > ", errors, " 2>&1").c_str());
  std::ifstream told(errors);
  EXPECT_EQ(code, 0) << std::string(std::istreambuf_iterator<char>(told), {});
}

TEST_F(PagesTest, EveryMetricHasOurPrefixAndHelp) {
  std::set<std::string> helped;
  std::istringstream page(Metrics());
  for (std::string line; std::getline(page, line);) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex(R"(# HELP (\S+) \S.*)"))) {
      helped.insert(match[1]);
    } else if (line[0] != '#') {
      const std::string name =
          std::regex_replace(line, std::regex(R"((_bucket|_sum|_count)?[{ ].*)"), "");
      EXPECT_TRUE(name.rfind("nightshift_", 0) == 0 && helped.count(name) != 0) << line;
    }
  }
}

TEST_F(PagesTest, ReadinessSaysWhatIsNotReady) {
  const httplib::Result ready = Page("/readyz");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->status, 200) << ready->body;
  EXPECT_EQ(ready->body, "store: ok\ndisk: ok\ndrain: ok\nengine: ok\n");
  SetDrain(true);
  const httplib::Result draining = Page("/readyz");
  EXPECT_EQ(draining->status, 503);
  EXPECT_THAT(draining->body, HasSubstr("drain: the daemon is drained"));
  EXPECT_EQ(Page("/livez")->status, 200) << "alive all the same";
  EXPECT_EQ(Value(Metrics(), R"(nightshift_ready{check="drain"})"), 0);
  SetDrain(false);
  EXPECT_EQ(Page("/readyz")->status, 200);
}

// From now on the descriptor under which this process opened the file first takes no writes.
void BreakWrites(const std::string& path) {
  std::vector<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) == path) {
      descriptors.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  ASSERT_FALSE(descriptors.empty()) << path << " is not open";
  const FileDescriptor unwritable(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int first = *std::min_element(descriptors.begin(), descriptors.end());
  ASSERT_EQ(::dup2(unwritable.get(), first), first);
}

TEST_F(PagesTest, ReadinessSaysThatTheStoreHasFailed) {
  std::promise<std::string> failed;
  on_fatal_ = [&](const absl::Status& status) { failed.set_value(std::string(status.message())); };
  Restart();
  EXPECT_TRUE(IsServing("nightshift.v1.JobService"));
  BreakWrites(std::filesystem::canonical(options_.state_directory).string() + "/store.sqlite-wal");
  v1::Job job;
  EXPECT_FALSE(Submit(TokenJob(1), job).ok());
  const std::string why = failed.get_future().get();
  const httplib::Result page = Page("/readyz");
  EXPECT_EQ(page->status, 503);
  EXPECT_THAT(page->body, HasSubstr("store: " + why + "\n"));
  EXPECT_THAT(page->body, HasSubstr("disk: ok\ndrain: ok\n"));
  EXPECT_EQ(Page("/livez")->status, 200) << "a restart is for who looks after it to decide";
  const std::string metrics = Metrics();
  EXPECT_EQ(Value(metrics, R"(nightshift_ready{check="store"})"), 0);
  EXPECT_EQ(Value(metrics, R"(nightshift_store_errors_total{kind="fatal"})"), 1);
  while (IsServing("nightshift.v1.JobService")) {  // until it is looked at again
  }
  EXPECT_FALSE(Submit(TokenJob(1), job).ok());
  server_.reset();
}

TEST_F(PagesTest, HealthFollowsADrain) {
  for (const char* service : {"", "liveness", "nightshift.v1.JobService", "engine"}) {
    EXPECT_TRUE(IsServing(service)) << service;
  }
  SetDrain(true);
  EXPECT_TRUE(IsServing(""));
  EXPECT_TRUE(IsServing("liveness"));
  EXPECT_FALSE(IsServing("nightshift.v1.JobService"));
  EXPECT_FALSE(IsServing("engine"));
  SetDrain(false);
  EXPECT_TRUE(IsServing("nightshift.v1.JobService"));
  EXPECT_TRUE(IsServing("engine"));
}

TEST_F(PagesTest, APortThatIsTakenEndsTheStart) {
  Options other = options_;
  other.state_directory = folder_.path() + "/other";
  other.listen = {"unix:" + folder_.path() + "/other-socket"};
  other.http_listen = server_->http_url().substr(std::string("http://").size());
  ServerParts parts;
  parts.engine_factory = [this](const EngineOptions& engine) {
    return FakeEngine::Create(engine, fake_engine_, &control_);
  };
  EXPECT_THAT(Server::Start(other, std::move(parts)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "--http-listen"));
}

TEST_F(PagesTest, WithoutAModelJobsAreTakenAndTheEngineIsNotReady) {
  server_.reset();
  options_.models.clear();
  options_.models_directory = folder_.path();
  Start();
  EXPECT_TRUE(IsServing("nightshift.v1.JobService"));
  EXPECT_FALSE(IsServing("engine"));
  const httplib::Result page = Page("/readyz");
  EXPECT_EQ(page->status, 503);
  EXPECT_THAT(page->body, HasSubstr("engine: there is no model: import one"));
}

}  // namespace
}  // namespace nightshift
