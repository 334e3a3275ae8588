// `nightshift run` and `results` against a daemon that breaks, and against their own earlier
// deaths.
#include "client/run_command.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "client/job_commands.h"
#include "client/results_command.h"
#include "tests/client/fake_daemon.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

class RunCommandTest : public testing::Test {
 protected:
  RunCommandTest() : console_(ConsoleOptions{.json = false, .quiet = true}) {}

  CommandLine Line(FakeDaemon& daemon, Command command) {
    output_ = daemon.PathOf("out.jsonl");
    CommandLine line;
    line.command = command;
    line.address = daemon.address();
    line.input = daemon.PathOf("in.jsonl");
    line.output = output_;
    line.job = kFakeJob;
    std::ofstream(line.input) << "{\"prompt\": \"x\"}\n";
    return line;
  }

  int Run(const CommandLine& line) { return static_cast<int>(RunCommand(line, console_)); }

  static std::string Read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // The custom ids of a result file, in order.
  static std::string Ids(const std::string& path) {
    std::string ids;
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line);) {
      const size_t start = line.find("\"id\":\"row-") + 10;
      ids += line.substr(start, line.find('"', start) - start) + " ";
    }
    return ids;
  }

  Console console_;
  std::string output_;
};

TEST_F(RunCommandTest, MakesAFileWithEachRowOnce) {
  FakeDaemon daemon(5);
  EXPECT_EQ(Run(Line(daemon, Command::kRun)), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 5 ");
  EXPECT_FALSE(fs::exists(output_ + ".part"));
  EXPECT_FALSE(fs::exists(output_ + ".part.state"));
}

// A person must undo that: whoever waits waits for ever.
TEST_F(RunCommandTest, EndsAtOnceWhenTheDaemonIsDrained) {
  FakeDaemon daemon(5);
  daemon.submit_errors = {
      RpcError(grpc::StatusCode::UNAVAILABLE, "SERVER_DRAINED", "the daemon is drained")};
  EXPECT_EQ(Run(Line(daemon, Command::kRun)), 8);
  EXPECT_EQ(daemon.request_ids.size(), 1U);
  EXPECT_FALSE(fs::exists(output_));
}

// The pack of a path is the daemon's when its digest is, whatever the names.
TEST_F(RunCommandTest, UsesADaemonOnlyForThePackThatItServes) {
  FakeDaemon daemon(5);
  CommandLine line = Line(daemon, Command::kRun);
  line.model = daemon.PathOf("tiny");
  fs::create_directories(line.model);
  std::ofstream(line.model + "/manifest.json") << R"({"digest": "aa"})";
  v1::Model model;
  model.set_name("tiny");
  model.set_digest("bb");
  daemon.server_service.models = {model};
  EXPECT_EQ(Run(line), 1);
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_TRUE(daemon.request_ids.empty());

  daemon.server_service.models.front().set_digest("aa");
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 5 ");
}

TEST_F(RunCommandTest, SurvivesStreamsThatBreakAndRepeat) {
  FakeDaemon daemon(9);
  daemon.streams = {
      {.num_results = 3, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}},
      {.num_results = 5, .status = {grpc::StatusCode::UNAVAILABLE, "draining"}, .repeat = 2}};
  EXPECT_EQ(Run(Line(daemon, Command::kRun)), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 5 6 7 8 9 ");
}

TEST_F(RunCommandTest, ContinuesAfterItsOwnDeathWithoutASecondUpload) {
  FakeDaemon daemon(6);
  daemon.streams = {
      {.num_results = 3,
       .status = RpcError(grpc::StatusCode::DATA_LOSS, "RECORD_CORRUPT", "for this test")}};
  const CommandLine line = Line(daemon, Command::kRun);
  EXPECT_EQ(Run(line), 9);
  EXPECT_FALSE(fs::exists(output_));
  // What a kill leaves behind a checkpoint: a whole line and a torn one.
  std::ofstream(output_ + ".part", std::ios::app) << "{\"id\":\"row-4\"}\n{\"id\":\"ro";
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 5 6 ");
  EXPECT_EQ(daemon.asked_after, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(daemon.request_ids.size(), 1U);
}

TEST_F(RunCommandTest, StartsOverWhenItsPartIsOfAnotherInput) {
  FakeDaemon daemon(4);
  daemon.streams = {
      {.num_results = 2,
       .status = RpcError(grpc::StatusCode::DATA_LOSS, "RECORD_CORRUPT", "for this test")}};
  CommandLine line = Line(daemon, Command::kRun);
  EXPECT_EQ(Run(line), 9);
  line.run_key = "another";
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(daemon.request_ids.size(), 2U);
  EXPECT_NE(daemon.request_ids[0], daemon.request_ids[1]);
  EXPECT_EQ(Ids(output_), "1 2 3 4 ");
}

TEST_F(RunCommandTest, SubmitsAgainWhenTheDaemonForgotTheJob) {
  FakeDaemon daemon(4);
  daemon.streams = {
      {.num_results = 2,
       .status = RpcError(grpc::StatusCode::DATA_LOSS, "RECORD_CORRUPT", "for this test")}};
  const CommandLine line = Line(daemon, Command::kRun);
  EXPECT_EQ(Run(line), 9);
  daemon.knows_job = false;
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(daemon.request_ids.size(), 2U);
  EXPECT_EQ(daemon.request_ids[0], daemon.request_ids[1]);
}

TEST_F(RunCommandTest, TheSameCommandHasTheSameRequestId) {
  FakeDaemon daemon(1);
  CommandLine line = Line(daemon, Command::kRun);
  for (const char* label : {"a", "b", "c", "d"}) {
    (*line.spec.mutable_labels())[label] = label;
  }
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(Run(line), 0);
  line.spec.mutable_sampling()->set_max_output_tokens(3);
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(daemon.request_ids[0], daemon.request_ids[1]);
  EXPECT_NE(daemon.request_ids[1], daemon.request_ids[2]);
}

TEST_F(RunCommandTest, ReportsHowTheJobEnded) {
  FakeDaemon daemon(2);
  CommandLine line = Line(daemon, Command::kRun);
  daemon.final_state = v1::JOB_STATE_FAILED;
  EXPECT_EQ(Run(line), 4);
  daemon.final_state = v1::JOB_STATE_CANCELLED;
  EXPECT_EQ(Run(line), 5);
  EXPECT_EQ(Ids(output_), "1 2 ");
}

TEST_F(RunCommandTest, DoesNotPassAnIncompleteJobOffAsWhole) {
  FakeDaemon daemon(3);
  daemon.missing_results = 1;
  EXPECT_EQ(Run(Line(daemon, Command::kRun)), 1);
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(RunCommandTest, ATimeLimitDetachesAndKeepsWhatThereIs) {
  FakeDaemon daemon(4);
  daemon.streams = {{.num_results = 2, .then_silent = true}};
  CommandLine line = Line(daemon, Command::kRun);
  line.timeout = absl::Seconds(1);
  EXPECT_EQ(Run(line), 8);
  EXPECT_FALSE(fs::exists(output_));
  line.timeout = absl::InfiniteDuration();
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 ");
}

TEST_F(RunCommandTest, AnInterruptDetachesAndTheJobGoesOn) {
  FakeDaemon daemon(4);
  daemon.streams = {{.num_results = 2, .then_silent = true}};
  const CommandLine line = Line(daemon, Command::kRun);
  daemon.on_silent = [] { kill(getpid(), SIGINT); };
  EXPECT_EQ(Run(line), 130);
  EXPECT_EQ(daemon.num_cancels, 0);
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_EQ(Run(line), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 ");
}

TEST_F(RunCommandTest, AnInterruptCancelsTheJobWhenAskedTo) {
  FakeDaemon daemon(4);
  daemon.streams = {{.num_results = 2, .then_silent = true}};
  CommandLine line = Line(daemon, Command::kRun);
  line.cancel_on_interrupt = true;
  daemon.on_silent = [] { kill(getpid(), SIGINT); };
  EXPECT_EQ(Run(line), 5);
  EXPECT_EQ(daemon.num_cancels, 1);
  EXPECT_EQ(Ids(output_), "1 2 3 4 ");
}

TEST_F(RunCommandTest, StandardOutputGetsEachRowOnceAlsoWhenCancelled) {
  FakeDaemon daemon(4);
  daemon.streams = {{.num_results = 2, .then_silent = true}};
  CommandLine line = Line(daemon, Command::kRun);
  line.output = "-";
  line.cancel_on_interrupt = true;
  daemon.on_silent = [] { kill(getpid(), SIGINT); };
  testing::internal::CaptureStdout();
  const int code = Run(line);
  std::ofstream(daemon.PathOf("captured")) << testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 5);
  EXPECT_EQ(Ids(daemon.PathOf("captured")), "1 2 3 4 ");
}

TEST_F(RunCommandTest, RefusesToReplaceItsInput) {
  FakeDaemon daemon(1);
  CommandLine line = Line(daemon, Command::kRun);
  line.output = line.input;
  EXPECT_EQ(Run(line), 9);
  EXPECT_EQ(Read(line.input), "{\"prompt\": \"x\"}\n");
}

TEST_F(RunCommandTest, ExitCodesTellInputDaemonAndModelApart) {
  FakeDaemon daemon(1);
  CommandLine line = Line(daemon, Command::kRun);
  line.input = daemon.PathOf("none.jsonl");
  EXPECT_EQ(Run(line), 9);

  line = Line(daemon, Command::kRun);
  daemon.submit_errors = {RpcError(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", "no model x")};
  EXPECT_EQ(Run(line), 6);
  daemon.submit_errors = {
      RpcError(grpc::StatusCode::RESOURCE_EXHAUSTED, "BACKLOG_FULL", "too many jobs")};
  EXPECT_EQ(Run(line), 10);
  daemon.submit_errors = {
      RpcError(grpc::StatusCode::INVALID_ARGUMENT, "INPUT_MALFORMED", "line 1 is no JSON")};
  EXPECT_EQ(Run(line), 9);
  line.address = "unix:" + daemon.PathOf("nobody");
  EXPECT_EQ(Run(line), 8);
  EXPECT_FALSE(fs::exists(output_ + ".part"));
}

TEST_F(RunCommandTest, ResultsMakesTheSameFile) {
  FakeDaemon daemon(3);
  const CommandLine line = Line(daemon, Command::kRun);
  ASSERT_EQ(Run(line), 0);
  const std::string ran = Read(output_);
  EXPECT_EQ(static_cast<int>(ResultsCommand(Line(daemon, Command::kResults), console_)), 0);
  EXPECT_EQ(Read(output_), ran);
}

TEST_F(RunCommandTest, ResultsOfARunningJobAreAFileOnlyWhenAskedFor) {
  FakeDaemon daemon(3);
  daemon.final_state = v1::JOB_STATE_RUNNING;
  daemon.missing_results = 5;
  CommandLine line = Line(daemon, Command::kResults);
  testing::internal::CaptureStderr();
  EXPECT_EQ(static_cast<int>(ResultsCommand(line, console_)), 8);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is running: 3 of 8 results in "), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_EQ(Ids(output_ + ".part"), "1 2 3 ");
  line.partial = true;
  EXPECT_EQ(static_cast<int>(ResultsCommand(line, console_)), 8);  // more is to come
  EXPECT_EQ(Ids(output_), "1 2 3 ");
  EXPECT_EQ(daemon.asked_after, (std::vector<int64_t>{0, 3}));
}

TEST_F(RunCommandTest, ResultsOfARunningJobOnStandardOutputAreSaidToBeAPart) {
  FakeDaemon daemon(3);
  daemon.final_state = v1::JOB_STATE_RUNNING;
  daemon.missing_results = 5;
  CommandLine line = Line(daemon, Command::kResults);
  line.output = "-";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(static_cast<int>(ResultsCommand(line, console_)), 8);
  std::ofstream(daemon.PathOf("captured")) << testing::internal::GetCapturedStdout();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("go on with --after 3"), std::string::npos) << said;
  EXPECT_EQ(Ids(daemon.PathOf("captured")), "1 2 3 ");
}

TEST_F(RunCommandTest, ResultsContinuesWhatRunLeft) {
  FakeDaemon daemon(4);
  daemon.streams = {
      {.num_results = 3,
       .status = RpcError(grpc::StatusCode::DATA_LOSS, "RECORD_CORRUPT", "for this test")}};
  EXPECT_EQ(Run(Line(daemon, Command::kRun)), 9);
  CommandLine line = Line(daemon, Command::kResults);
  line.follow = true;
  EXPECT_EQ(static_cast<int>(ResultsCommand(line, console_)), 0);
  EXPECT_EQ(Ids(output_), "1 2 3 4 ");
  EXPECT_EQ(daemon.asked_after, (std::vector<int64_t>{0, 3}));
}

TEST_F(RunCommandTest, ResultsStartsWhereItIsToldTo) {
  FakeDaemon daemon(4);
  CommandLine line = Line(daemon, Command::kResults);
  line.after_seq = 2;
  EXPECT_EQ(static_cast<int>(ResultsCommand(line, console_)), 0);
  EXPECT_EQ(Ids(output_), "3 4 ");
}

TEST_F(RunCommandTest, WaitAndStatusUseTheSameCodes) {
  FakeDaemon daemon(1);
  CommandLine line = Line(daemon, Command::kWait);
  EXPECT_EQ(static_cast<int>(WaitCommand(line, console_)), 0);
  daemon.final_state = v1::JOB_STATE_CANCELLED;
  EXPECT_EQ(static_cast<int>(WaitCommand(line, console_)), 5);
  line.job = "jobs/other";
  EXPECT_EQ(static_cast<int>(StatusCommand(line, console_)), 6);
}

}  // namespace
}  // namespace nightshift
