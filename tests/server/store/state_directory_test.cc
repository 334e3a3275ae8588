#include "server/store/state_directory.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "kernels/base/file_descriptor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

unsigned ModeOf(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0 ? found.st_mode & 0777U : 0U;
}

TEST(StateDirectoryTest, MakesPrivateFoldersWhereNoneAre) {
  const TemporaryFolder folder;
  auto directory = StateDirectory::Open(folder.path() + "/a/state");
  ASSERT_OK(directory);
  EXPECT_EQ(ModeOf((*directory)->path()), 0700U);
  EXPECT_EQ(ModeOf((*directory)->jobs_path()), 0700U);
  EXPECT_EQ(ModeOf((*directory)->uploads_path()), 0700U);
  EXPECT_EQ(ModeOf((*directory)->path() + "/lock"), 0600U);
}

TEST(StateDirectoryTest, BelongsToOneDaemonAtATime) {
  const TemporaryFolder folder;
  auto first = StateDirectory::Open(folder.path());
  ASSERT_OK(first);
  EXPECT_THAT(StateDirectory::Open(folder.path()),
              StatusIs(absl::StatusCode::kFailedPrecondition, folder.path()));
  first->reset();
  EXPECT_OK(StateDirectory::Open(folder.path()));
}

int64_t NumOpen(const std::string& path) {
  int64_t count = 0;
  std::error_code error;
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    count += std::filesystem::read_symlink(fd.path(), error) == path ? 1 : 0;
  }
  return count;
}

// As by the engine's process of a daemon that was killed while it spawned it.
TEST(StateDirectoryTest, WaitsForALockThatIsHeldForAMomentMore) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/lock";
  FileDescriptor held(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::atomic<bool> opened{false};
  absl::Status status;
  std::thread opener([&] {
    status = StateDirectory::Open(folder.path()).status();
    opened = true;
  });
  while (NumOpen(path) < 2 && !opened) {
    std::this_thread::yield();
  }
  held = FileDescriptor();
  opener.join();
  EXPECT_OK(status);
}

TEST(StateDirectoryTest, KeepsADrainUntilItIsUndone) {
  const TemporaryFolder folder;
  for (const bool drained : {false, true, true, false, false}) {
    auto directory = StateDirectory::Open(folder.path());
    ASSERT_OK(directory);
    ASSERT_OK((*directory)->KeepDrained(drained));
    EXPECT_EQ((*directory)->IsDrained(), drained);
    directory->reset();
    directory = StateDirectory::Open(folder.path());
    ASSERT_OK(directory);
    EXPECT_EQ((*directory)->IsDrained(), drained);
  }
}

TEST(StateDirectoryTest, RefusesAPathThatIsNoFolder) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_THAT(StateDirectory::Open(folder.path() + "/file"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "file"));
}

TEST(StateDirectoryTest, KnowsNetworkFilesystems) {
  EXPECT_TRUE(IsNetworkFilesystem(0x6969));       // NFS
  EXPECT_TRUE(IsNetworkFilesystem(0xFF534D42));   // CIFS
  EXPECT_FALSE(IsNetworkFilesystem(0xEF53));      // ext4
  EXPECT_FALSE(IsNetworkFilesystem(0x01021994));  // tmpfs
}

TEST(StateDirectoryTest, RemovesFilesThatBelongToNoJob) {
  const TemporaryFolder folder;
  auto directory = StateDirectory::Open(folder.path());
  ASSERT_OK(directory);
  for (const char* name : {"/jobs/kept", "/jobs/stray", "/uploads/part"}) {
    std::ofstream(folder.path() + name) << "x";
  }
  ASSERT_OK((*directory)->RemoveStrayFiles({"jobs/kept"}));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/jobs/kept"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/jobs/stray"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/uploads/part"));
}

}  // namespace
}  // namespace nightshift
