// PrivateDaemon with a shell script in the place of nightshiftd. A real one runs in tests/e2e.
#include "client/private_daemon.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

class PrivateDaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "pack");
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
    InstallDaemon("echo \"cannot read the pack\" >&2; exit 3");
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  void InstallDaemon(const std::string& script) {
    const fs::path program = folder_ / "nightshiftd";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(program, fs::perms::owner_all);
  }

  absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start() {
    return PrivateDaemon::Start({(folder_ / "pack").string(), state_directory()},
                                [this] { return --patience_ > 0; });
  }

  std::string state_directory() const {
    return PrivateStateDirectoryOf((folder_ / "out.jsonl").string());
  }

  fs::path folder_;
  std::string path_;
  int patience_ = 1000;
};

TEST_F(PrivateDaemonTest, TellsWhyItsDaemonEnded) {
  const auto daemon = Start();
  EXPECT_THAT(daemon, StatusIs(absl::StatusCode::kUnavailable, "exit code 3"));
  EXPECT_THAT(daemon, StatusIs(absl::StatusCode::kUnavailable, "ends: cannot read the pack"));
  EXPECT_TRUE(IsPrivateStateDirectory(state_directory()));
}

TEST_F(PrivateDaemonTest, GivesTheDaemonPackStateAndAddress) {
  InstallDaemon("echo \"$@\"; exit 3");
  const auto daemon = Start();
  const std::string expected =
      " --state-dir " + state_directory() + " --model " + (folder_ / "pack").string();
  EXPECT_THAT(daemon, StatusIs(absl::StatusCode::kUnavailable, "ends: --listen unix:/"));
  EXPECT_THAT(daemon, StatusIs(absl::StatusCode::kUnavailable, expected));
}

TEST_F(PrivateDaemonTest, StopsADaemonThatItDoesNotWaitForAnyLonger) {
  InstallDaemon("exec tail -f /dev/null");
  patience_ = 3;
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kCancelled, "interrupted"));
}

TEST_F(PrivateDaemonTest, RefusesAFolderThatIsNotItsOwn) {
  fs::create_directories(state_directory());
  std::ofstream(state_directory() + "/thesis.txt") << "keep me";
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kFailedPrecondition, "not from an earlier run"));
  EXPECT_TRUE(fs::exists(state_directory() + "/thesis.txt"));
}

TEST_F(PrivateDaemonTest, NamesThePackThatIsNotThere) {
  fs::remove(folder_ / "pack");
  EXPECT_THAT(Start(), StatusIs(absl::StatusCode::kNotFound, "pack: no such folder"));
  EXPECT_FALSE(fs::exists(state_directory()));
}

}  // namespace
}  // namespace nightshift
