// Client against a daemon whose connections break.
#include "client/client.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/client/fake_daemon.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

class ClientTest : public testing::Test {
 protected:
  std::unique_ptr<Client> Connect(FakeDaemon& daemon) {
    ClientOptions options;
    options.address = daemon.address();
    options.silence_limit = absl::Milliseconds(300);
    options.retry.retry_for = retry_for_;
    options.retry.first_backoff = absl::Milliseconds(10);
    options.retry.on_retry = [this](const absl::Status& error) { retried_.push_back(error); };
    options.keep_waiting = [this] { return !stop_; };
    auto client = Client::Connect(options);
    EXPECT_OK(client);
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Streams the whole job; the sequence numbers that the listener was given are in seen_.
  absl::StatusOr<ResultStreamEnd> Follow(Client& client, int64_t after_seq = 0) {
    ResultListener listener;
    listener.on_batch = [this](const v1::ResultBatch& batch) {
      for (const v1::Result& result : batch.results()) {
        seen_.push_back(result.seq());
      }
      if (on_batch_) {
        on_batch_();
      }
      return absl::OkStatus();
    };
    return client.StreamResults({kFakeJob, after_seq, true}, listener);
  }

  static std::vector<int64_t> Range(int64_t first, int64_t last) {
    std::vector<int64_t> numbers;
    for (int64_t number = first; number <= last; ++number) {
      numbers.push_back(number);
    }
    return numbers;
  }

  static InputFile Input(FakeDaemon& daemon, const std::string& bytes) {
    const std::string path = daemon.PathOf("in.jsonl");
    std::ofstream(path, std::ios::binary) << bytes;
    auto input = InputFile::Open(path);
    EXPECT_OK(input);
    return *std::move(input);
  }

  static SubmitOptions WithId(const std::string& request_id) {
    SubmitOptions submission;
    submission.request_id = request_id;
    return submission;
  }

  std::vector<int64_t> seen_;
  std::vector<absl::Status> retried_;
  std::function<void()> on_batch_;
  bool stop_ = false;
  absl::Duration retry_for_ = absl::Seconds(15);
};

TEST_F(ClientTest, SaysAtOnceThatNobodyListens) {
  ClientOptions options;
  options.address = "unix:" + testing::TempDir() + "/nobody";
  const auto client = Client::Connect(options);
  EXPECT_THAT(client, StatusIs(absl::StatusCode::kUnavailable, "no daemon is listening at unix:"));
  EXPECT_EQ(DetailsOf(client.status()).reason, "NOT_LISTENING");
}

TEST_F(ClientTest, StreamsEachResultOnceInOrder) {
  FakeDaemon daemon(20);
  auto client = Connect(daemon);
  ASSERT_OK_AND_ASSIGN(const ResultStreamEnd end, Follow(*client));
  EXPECT_EQ(seen_, Range(1, 20));
  EXPECT_TRUE(end.job_ended);
  EXPECT_EQ(end.last_seq, 20);
  EXPECT_EQ(end.counts.succeeded(), 20);
}

TEST_F(ClientTest, ResumesAfterTheLastResultWhenTheStreamBreaks) {
  FakeDaemon daemon(10);
  daemon.streams = {{.num_results = 3, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}},
                    {.num_results = 0, .status = {grpc::StatusCode::UNAVAILABLE, "starting"}},
                    {.num_results = 4, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}}};
  auto client = Connect(daemon);
  ASSERT_OK(Follow(*client));
  EXPECT_EQ(seen_, Range(1, 10));
  EXPECT_EQ(daemon.asked_after, (std::vector<int64_t>{0, 3, 3, 7}));
  EXPECT_EQ(retried_.size(), 3U);
}

TEST_F(ClientTest, SurvivesARestartOfTheDaemon) {
  FakeDaemon daemon(10);
  daemon.streams = {{.num_results = 5, .then_silent = true}};
  auto client = Connect(daemon);
  on_batch_ = [&] {
    if (seen_.size() == 5) {
      daemon.Restart();
    }
  };
  ASSERT_OK(Follow(*client));
  EXPECT_EQ(seen_, Range(1, 10));
}

TEST_F(ClientTest, DropsResultsThatTheServerRepeats) {
  FakeDaemon daemon(10);
  daemon.streams = {{.num_results = 6, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}},
                    {.repeat = 4}};
  auto client = Connect(daemon);
  ASSERT_OK(Follow(*client));
  EXPECT_EQ(seen_, Range(1, 10));
}

TEST_F(ClientTest, AsksAgainForAResultThatWasLeftOut) {
  FakeDaemon daemon(10);
  daemon.streams = {{.num_results = 2, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}},
                    {.skip_one = true}};
  auto client = Connect(daemon);
  ASSERT_OK(Follow(*client));
  EXPECT_EQ(seen_, Range(1, 10));
  EXPECT_EQ(daemon.asked_after, (std::vector<int64_t>{0, 2, 2}));
}

TEST_F(ClientTest, TakesASilentStreamForDead) {
  FakeDaemon daemon(10);
  daemon.streams = {{.num_results = 4, .then_silent = true}};
  auto client = Connect(daemon);
  ASSERT_OK(Follow(*client));
  EXPECT_EQ(seen_, Range(1, 10));
  ASSERT_EQ(retried_.size(), 1U);
  EXPECT_THAT(retried_[0], StatusIs(absl::StatusCode::kUnavailable, "no sign of life"));
}

TEST_F(ClientTest, StartsAfterTheResultThatItIsToldOf) {
  FakeDaemon daemon(10);
  auto client = Connect(daemon);
  ASSERT_OK(Follow(*client, 7));
  EXPECT_EQ(seen_, Range(8, 10));
}

TEST_F(ClientTest, ReturnsErrorsThatDoNotPassWithTheirReason) {
  FakeDaemon daemon(10);
  daemon.streams = {
      {.num_results = 2,
       .status = RpcError(grpc::StatusCode::DATA_LOSS, "RECORD_CORRUPT", "result 3 is corrupt")}};
  auto client = Connect(daemon);
  const auto end = Follow(*client);
  EXPECT_THAT(end, StatusIs(absl::StatusCode::kDataLoss, "result 3 is corrupt"));
  EXPECT_EQ(DetailsOf(end.status()).reason, "RECORD_CORRUPT");
  EXPECT_EQ(daemon.asked_after.size(), 1U);
}

TEST_F(ClientTest, GivesUpWhenTroubleDoesNotPass) {
  FakeDaemon daemon(10);
  retry_for_ = absl::ZeroDuration();
  auto client = Connect(daemon);
  daemon.streams = {{.num_results = 2, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}}};
  EXPECT_THAT(Follow(*client), StatusIs(absl::StatusCode::kUnavailable, "draining"));
  EXPECT_EQ(seen_, Range(1, 2));
}

TEST_F(ClientTest, AListenersErrorEndsTheStream) {
  FakeDaemon daemon(10);
  auto client = Connect(daemon);
  ResultListener listener;
  listener.on_batch = [](const v1::ResultBatch&) {
    return absl::ResourceExhaustedError("disk full");
  };
  EXPECT_THAT(client->StreamResults({kFakeJob, 0, true}, listener),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_EQ(daemon.asked_after.size(), 1U);
}

TEST_F(ClientTest, StopsASilentStreamWhenItIsTold) {
  FakeDaemon daemon(10);
  daemon.streams = {{.num_results = 4, .then_silent = true}};
  auto client = Connect(daemon);
  on_batch_ = [&] { stop_ = seen_.size() == 4; };
  EXPECT_THAT(Follow(*client), StatusIs(absl::StatusCode::kCancelled, "interrupted"));
  EXPECT_EQ(seen_, Range(1, 4));
}

TEST_F(ClientTest, UploadsALargeInputInChunks) {
  FakeDaemon daemon(1);
  std::string bytes;
  for (int line = 0; bytes.size() < 3'000'000; ++line) {
    bytes += "{\"prompt\": \"" + std::to_string(line) + "\"}\n";
  }
  const InputFile input = Input(daemon, bytes);
  auto client = Connect(daemon);
  ASSERT_OK_AND_ASSIGN(const v1::Job job, client->Submit(WithId("r"), input));
  EXPECT_EQ(job.name(), kFakeJob);
  EXPECT_EQ(daemon.uploaded, bytes);
}

TEST_F(ClientTest, RepeatsAnUploadUnderTheSameRequestId) {
  FakeDaemon daemon(1);
  daemon.submit_errors = {
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"),
      RpcError(grpc::StatusCode::ABORTED, "REQUEST_IN_PROGRESS", "still in flight")};
  const InputFile input = Input(daemon, "{\"prompt\": \"x\"}\n");
  auto client = Connect(daemon);
  ASSERT_OK(client->Submit(WithId("the-id"), input));
  EXPECT_EQ(daemon.request_ids, (std::vector<std::string>{"the-id", "the-id", "the-id"}));
  EXPECT_EQ(daemon.uploaded, "{\"prompt\": \"x\"}\n");
}

TEST_F(ClientTest, DoesNotRepeatAnUploadThatWasRefused) {
  FakeDaemon daemon(1);
  daemon.submit_errors = {
      RpcError(grpc::StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED", "line 3 is no JSON")};
  const InputFile input = Input(daemon, "{\"prompt\": \"x\"}\n");
  auto client = Connect(daemon);
  EXPECT_THAT(client->Submit(WithId("r"), input),
              StatusIs(absl::StatusCode::kInvalidArgument, "submit: line 3 is no JSON"));
  EXPECT_EQ(daemon.request_ids.size(), 1U);
}

TEST_F(ClientTest, RefusesAnInputThatChangesUnderIt) {
  FakeDaemon daemon(1);
  const InputFile input = Input(daemon, "{\"prompt\": \"x\"}\n");
  std::ofstream(daemon.PathOf("in.jsonl"), std::ios::binary) << "{\"prompt\": \"y\"}\n";
  auto client = Connect(daemon);
  EXPECT_THAT(client->Submit(WithId("r"), input),
              StatusIs(absl::StatusCode::kInvalidArgument, "changed while it was read"));
}

TEST_F(ClientTest, NamesTheJobThatDoesNotExist) {
  FakeDaemon daemon(1);
  auto client = Connect(daemon);
  const auto job = client->GetJob("jobs/other");
  EXPECT_THAT(job, StatusIs(absl::StatusCode::kNotFound, "read jobs/other: no job jobs/other"));
  EXPECT_EQ(DetailsOf(job.status()).reason, "JOB_NOT_FOUND");
}

}  // namespace
}  // namespace nightshift
