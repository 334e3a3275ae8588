// This executable is its own engine process, with a fake engine.
#include "engine/process/engine_process.h"

#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/process/serve_engine.h"
#include "kernels/base/log.h"
#include "tests/support/fake_engine.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Packs that make creation fail or end the process.
constexpr char kNoPack[] = "/none";
constexpr char kDyingPack[] = "/dies";
constexpr char kAbortingPack[] = "/aborts";

absl::StatusOr<std::unique_ptr<Engine>> CreateInChild(const EngineOptions& options) {
  if (options.pack_path == kNoPack) {
    return absl::NotFoundError("no pack at /none");
  }
  if (options.pack_path == kDyingPack) {
    std::raise(SIGKILL);
  }
  if (options.pack_path == kAbortingPack) {
    LOG(ERROR) << "the last thing that it says";
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
  }
  return FakeEngine::Create(options, {}, nullptr);
}

EngineOptions FakeOptions(const std::string& pack = "/fake") {
  EngineOptions options;
  options.pack_path = pack;
  options.max_block_requests = 4;
  return options;
}

EngineRequest Request(uint64_t id, std::vector<int32_t> prompt, int64_t max_output_tokens = 8) {
  EngineRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.max_output_tokens = max_output_tokens;
  return request;
}

std::unique_ptr<EngineProcess> Start() {
  auto engine = EngineProcess::Create(FakeOptions());
  EXPECT_OK(engine);
  return std::unique_ptr<EngineProcess>(static_cast<EngineProcess*>(engine->release()));
}

void Kill(const EngineProcess& engine) {
  ASSERT_EQ(kill(engine.pid(), SIGKILL), 0);
}

TEST(EngineProcessTest, AnswersLikeTheEngineInIt) {
  const auto engine = Start();
  EXPECT_EQ(engine->info().numeric_mode, "bf16/fake");
  EXPECT_EQ(engine->info().max_block_requests, 4);
  const std::vector<AdmitOutcome> outcomes =
      engine->Admit({Request(1, {20, 21}), Request(2, {22}), Request(3, {23}), Request(4, {24}),
                     Request(5, {25})});
  ASSERT_THAT(outcomes, SizeIs(5));
  EXPECT_EQ(outcomes[0].id, 1U);
  EXPECT_OK(outcomes[3].status);
  EXPECT_THAT(outcomes[4].status, StatusIs(absl::StatusCode::kResourceExhausted, "no room now"));
  EXPECT_EQ(engine->num_held(), 4);
  engine->Retire({2, 3});
  EXPECT_EQ(engine->num_held(), 2);
  ASSERT_OK_AND_ASSIGN(const SweepResult sweep, engine->Sweep());
  ASSERT_THAT(sweep.records, SizeIs(2));
  const FakeCompletion expected = CompleteFake({20, 21}, Request(1, {}).sampling, 512);
  EXPECT_EQ(sweep.records[0].token->token, expected.sampled[0]);
  EXPECT_EQ(sweep.times.wall_us, kFakeSweepUs);
  EXPECT_THAT(sweep.steps, SizeIs(2));
  const std::vector<EngineRequest> suspended = engine->Suspend({1, 99});
  ASSERT_THAT(suspended, SizeIs(1));
  EXPECT_THAT(suspended[0].generated, ElementsAre(expected.sampled[0]));
  EngineOptions plan = FakeOptions();
  plan.max_block_requests = 8;
  EXPECT_THAT(engine->ApplyPlan(plan).value(), IsEmpty());
  EXPECT_EQ(engine->info().max_block_requests, 8);
  EXPECT_OK(engine->Health());
}

TEST(EngineProcessTest, AnErrorOfTheEngineComesBackAndTheProcessLives) {
  const auto engine = Start();
  engine->Admit({Request(1, {kPoisonToken})});
  EXPECT_THAT(engine->Sweep(), StatusIs(absl::StatusCode::kInternal, "poisonous prompt"));
  EXPECT_OK(engine->Health());
  EXPECT_THAT(EngineProcess::Create(FakeOptions(kNoPack)),
              StatusIs(absl::StatusCode::kNotFound, "no pack at /none"));
  EXPECT_THAT(EngineProcess::Create({}),
              StatusIs(absl::StatusCode::kInvalidArgument, "pack_path is empty"));
}

TEST(EngineProcessTest, AProcessThatIsKilledInASweepIsUnavailable) {
  const auto engine = Start();
  engine->Admit({Request(1, {20}), Request(2, {kCrashToken})});
  EXPECT_THAT(engine->Sweep(),
              StatusIs(absl::StatusCode::kUnavailable,
                       absl::StrCat("engine process ", engine->pid(), " was ended by signal 9")));
  EXPECT_EQ(engine->num_held(), 0);
}

// Who waits learns it from a sweep that holds them: they are taken in, nothing comes back.
TEST(EngineProcessTest, AProcessThatHasEndedTakesRequestsAndFailsTheirSweep) {
  const auto engine = Start();
  engine->Admit({Request(1, {20})});
  Kill(*engine);
  const std::vector<AdmitOutcome> outcomes = engine->Admit({Request(2, {21}), Request(3, {22})});
  ASSERT_THAT(outcomes, SizeIs(2));
  EXPECT_EQ(outcomes[1].id, 3U);
  EXPECT_OK(outcomes[1].status);
  EXPECT_THAT(engine->Suspend({1, 2, 3}), IsEmpty());
  engine->Retire({1});
  EXPECT_THAT(engine->ApplyPlan(FakeOptions()), StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(engine->Sweep(), StatusIs(absl::StatusCode::kUnavailable, "signal 9"));
  EXPECT_THAT(engine->Health(), StatusIs(absl::StatusCode::kUnavailable, "signal 9"));
}

TEST(EngineProcessTest, HealthTellsOfAnEndThatNobodyAskedFor) {
  const auto engine = Start();
  EXPECT_OK(engine->Health());
  Kill(*engine);
  siginfo_t ended{};  // of the zombie, which stays
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(engine->pid()), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(engine->Health(), StatusIs(absl::StatusCode::kUnavailable, "signal 9"));
}

TEST(EngineProcessTest, AProcessThatIsKilledWhileItLoadsIsUnavailableAndOneThatAbortsIsAnError) {
  EXPECT_THAT(EngineProcess::Create(FakeOptions(kDyingPack)),
              StatusIs(absl::StatusCode::kUnavailable, "signal 9"));
  const absl::Status aborted = EngineProcess::Create(FakeOptions(kAbortingPack)).status();
  EXPECT_THAT(aborted, StatusIs(absl::StatusCode::kInternal, "signal 6"));
  EXPECT_THAT(std::string(aborted.message()), HasSubstr("the last thing that it says"));
}

TEST(EngineProcessTest, TheProcessEndsWithTheEngine) {
  pid_t pid = 0;
  {
    const auto engine = Start();
    pid = engine->pid();
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(EngineProcessTest, TheProcessHasNoDescriptorOfOursAndIsFirstToBeKilled) {
  const FileDescriptor inherited(fcntl(STDERR_FILENO, F_DUPFD, 20));  // not close-on-exec
  const auto engine = Start();
  const std::string proc = absl::StrCat("/proc/", engine->pid());
  std::vector<int> fds;
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd")) {
    fds.push_back(std::stoi(entry.path().filename().string()));
  }
  EXPECT_THAT(fds, ::testing::UnorderedElementsAre(0, 1, 2, 3));
  const int ours = std::stoi(ReadSmallFile("/proc/self/oom_score_adj", 64).value());
  const int theirs = std::stoi(ReadSmallFile(proc + "/oom_score_adj", 64).value());
  EXPECT_EQ(theirs, std::min(ours + 500, 1000));
  EXPECT_EQ(ReadSmallFile(proc + "/comm", 64).value(), "nightshift-eng\n");
}

// --- the other side ---

class ServeEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = MessageSocket::Pair();
    ASSERT_OK(ends);
    raw_ = ends->first.get();
    ours_.emplace(std::move(ends->first));
    thread_ = std::thread([this, fd = std::make_shared<FileDescriptor>(std::move(ends->second))] {
      MessageSocket socket(std::move(*fd));
      served_ = ServeEngine(socket, CreateInChild);
    });
  }
  absl::Status End() {
    ours_->Close();
    thread_.join();
    return served_;
  }
  void Send(const EngineCall& call) { ASSERT_OK(ours_->Send(EncodeCall(call))); }

  std::optional<MessageSocket> ours_;
  int raw_ = -1;
  absl::Status served_;
  std::thread thread_;
};

TEST_F(ServeEngineTest, ServesUntilTheOtherEndCloses) {
  Send({.kind = CallKind::kCreate, .options = FakeOptions()});
  EXPECT_OK(DecodeAnswer(ours_->Receive().value())->status);
  EXPECT_OK(End());
}

TEST_F(ServeEngineTest, ACallBeforeThereIsAnEngineEndsIt) {
  Send({.kind = CallKind::kSweep});
  EXPECT_THAT(End(), StatusIs(absl::StatusCode::kDataLoss, "call 2"));
}

TEST_F(ServeEngineTest, ASecondCreationEndsIt) {
  Send({.kind = CallKind::kCreate, .options = FakeOptions()});
  EXPECT_OK(ours_->Receive());
  Send({.kind = CallKind::kCreate, .options = FakeOptions()});
  EXPECT_THAT(End(), StatusIs(absl::StatusCode::kDataLoss, "call 0"));
}

TEST_F(ServeEngineTest, BytesThatAreNoCallEndIt) {
  ASSERT_OK(ours_->Send("not a call"));
  EXPECT_THAT(End(), StatusIs(absl::StatusCode::kDataLoss, "no call of an engine"));
}

TEST_F(ServeEngineTest, BytesThatAreNoMessageEndIt) {
  ASSERT_OK(WriteAll(raw_, std::string(1000, 'x'), "a socket"));
  EXPECT_THAT(End(), StatusIs(absl::StatusCode::kDataLoss, "begin like a message"));
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  if (nightshift::IsEngineProcess(argc, argv)) {
    return nightshift::RunEngineProcess(nightshift::CreateInChild);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
