#include <future>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/service_world.h"

namespace nightshift {
namespace {

using ::grpc::StatusCode;
using ::testing::SizeIs;

class DrainTest : public ServiceWorld {
 protected:
  // Drains while the engine is in a sweep, and lets the sweep end then.
  void DrainServer() {
    std::future<void> drained = std::async(std::launch::async, [this] { server_->Drain(); });
    control_.ReleaseSweeps();
    drained.get();
  }
};

TEST_F(DrainTest, AnswersThoseWhoWaitWithTheStateNow) {
  control_.HoldSweeps();
  v1::WaitJobRequest request;
  request.set_name(Submit(TokenJob(200)).name());
  control_.WaitForHeldSweep();
  std::future<grpc::Status> waited = std::async(std::launch::async, [&] {
    v1::Job job;
    return Wait(request, job);
  });
  DrainServer();
  const grpc::Status status = waited.get();
  // A wait that came when the drain had begun is told so.
  EXPECT_TRUE(status.ok() || status.error_code() == StatusCode::UNAVAILABLE)
      << status.error_message();
}

TEST_F(DrainTest, ResumesUnfinishedJobsAndRepeatsNoResult) {
  control_.HoldSweeps();
  const std::string name = Submit(TokenJob(100)).name();
  control_.AllowSweeps(12);
  control_.WaitForHeldSweep();
  DrainServer();
  Restart();
  const ResultsRead before = Stream(name, 0, false);
  const int64_t seen = static_cast<int64_t>(before.results.size());
  const ResultsRead after = Stream(name, seen);
  EXPECT_EQ(after.end.state(), v1::JOB_STATE_SUCCEEDED);
  std::set<int64_t> indices;
  for (const ResultsRead* read : {&before, &after}) {
    for (const v1::Result& result : read->results) {
      EXPECT_TRUE(indices.insert(result.index()).second) << "row " << result.index();
    }
  }
  EXPECT_THAT(indices, SizeIs(100));
}

TEST_F(DrainTest, KeepsTwoDaemonsOffOneStateDirectory) {
  Options second = options_;
  second.listen = {"unix:" + folder_.path() + "/second"};
  const auto server = Server::Start(second, {.engine_factory = {}, .on_fatal = {}});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition) << server.status();
}

TEST_F(DrainTest, KeepsTwoDaemonsOffOneSocket) {
  Options second = options_;
  second.state_directory = folder_.path() + "/second";
  const auto server = Server::Start(second, {.engine_factory = {}, .on_fatal = {}});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition) << server.status();
  v1::Job job;
  EXPECT_THAT(Get("jobs/nobody", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
}

}  // namespace
}  // namespace nightshift
