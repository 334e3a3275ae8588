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
    std::future<bool> drained = std::async(std::launch::async, [this] { return server_->Drain(); });
    control_.ReleaseSweeps();
    EXPECT_TRUE(drained.get()) << "calls had to be cancelled";
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

TEST_F(DrainTest, ShowsThatAStreamIsAliveAndEndsItWhenItDrains) {
  heartbeat_interval_us_ = 5000;
  Restart();
  control_.HoldSweeps();
  const std::string name = Submit(TokenJob(200)).name();
  control_.WaitForHeldSweep();
  grpc::ClientContext context;
  v1::StreamResultsRequest request;
  request.set_name(name);
  request.set_follow(true);
  const auto reader = jobs_->StreamResults(&context, request);
  v1::ResultBatch batch;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(reader->Read(&batch));
    EXPECT_EQ(batch.results_size(), 0);
    EXPECT_FALSE(batch.has_end());
  }
  DrainServer();
  while (reader->Read(&batch)) {
    EXPECT_FALSE(batch.has_end());
  }
  EXPECT_THAT(reader->Finish(), Refuses(StatusCode::UNAVAILABLE, "SERVER_DRAINING"));
}

TEST_F(DrainTest, EndsStreamsAtOnceThoughTheirClientsLeft) {
  heartbeat_interval_us_ = 1000;
  Restart();
  control_.HoldSweeps();
  const std::string name = Submit(TokenJob(50)).name();
  control_.WaitForHeldSweep();
  v1::StreamResultsRequest request;
  request.set_name(name);
  request.set_follow(true);
  v1::ResultBatch batch;
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    const auto reader = jobs_->StreamResults(&context, request);
    ASSERT_TRUE(reader->Read(&batch));
    context.TryCancel();
    while (reader->Read(&batch)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  }
  DrainServer();
}

TEST_F(DrainTest, KeepsTwoDaemonsOffOneStateDirectory) {
  Options second = options_;
  second.listen = {"unix:" + folder_.path() + "/second"};
  const auto server = Server::Start(second, ServerParts());
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition) << server.status();
}

TEST_F(DrainTest, KeepsTwoDaemonsOffOneSocket) {
  Options second = options_;
  second.state_directory = folder_.path() + "/second";
  const auto server = Server::Start(second, ServerParts());
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition) << server.status();
  v1::Job job;
  EXPECT_THAT(Get("jobs/nobody", job), Refuses(StatusCode::NOT_FOUND, "JOB_NOT_FOUND"));
}

}  // namespace
}  // namespace nightshift
