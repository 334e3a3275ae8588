#include "server/store/disk_guard.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr int64_t kBallastBytes = 1 << 20;

// A disk of 4 MiB where this machine lets us mount one.
class DiskGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    mounted_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=4m") == 0;
    if (!mounted_) {
      GTEST_SKIP() << "a small disk cannot be mounted here";
    }
  }
  ~DiskGuardTest() override {
    if (mounted_) {
      ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
  }

  DiskGuardOptions options() const {
    return {.path = folder_.path() + "/ballast",
            .ballast_bytes = kBallastBytes,
            .retry_interval_us = 1000};
  }
  int64_t FreeBytes() const {
    return static_cast<int64_t>(std::filesystem::space(folder_.path()).available);
  }
  std::string filler() const { return folder_.path() + "/filler"; }
  void Fill() {
    std::ofstream file(filler(), std::ios::binary);
    const std::string piece(4096, 'f');
    while (file.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush()) {
    }
  }

  TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST_F(DiskGuardTest, SetsRoomAsideAndGivesItUpOnce) {
  const int64_t before = FreeBytes();
  DiskGuard guard(options());
  EXPECT_LE(FreeBytes(), before - kBallastBytes);
  EXPECT_FALSE(guard.full());
  EXPECT_OK(guard.CheckRoom());
  Fill();
  EXPECT_TRUE(guard.MakeRoom());
  EXPECT_TRUE(guard.full());
  EXPECT_GE(FreeBytes(), kBallastBytes);
  EXPECT_THAT(guard.CheckRoom(), StatusIs(absl::StatusCode::kResourceExhausted, "2097152 bytes"));
  EXPECT_FALSE(guard.MakeRoom()) << "there is no more";
}

TEST_F(DiskGuardTest, IsFullUntilTheBallastIsBack) {
  DiskGuard guard(options());
  Mutex mutex;
  CondVar changed;
  guard.Watch([&] {
    MutexLock lock(mutex);
    changed.NotifyAll();
  });
  Fill();
  EXPECT_TRUE(guard.MakeRoom());
  std::filesystem::remove(filler());
  MutexLock lock(mutex);
  while (guard.full()) {
    changed.WaitFor(mutex, std::chrono::milliseconds(100));
  }
  EXPECT_EQ(std::filesystem::file_size(options().path), kBallastBytes);
}

TEST_F(DiskGuardTest, StartsFullOnAFullDisk) {
  Fill();
  DiskGuard guard(options());
  EXPECT_TRUE(guard.full());
  EXPECT_FALSE(std::filesystem::exists(options().path));
}

TEST_F(DiskGuardTest, TakesTheBallastOfTheRunBefore) {
  { const DiskGuard guard(options()); }
  Fill();
  const DiskGuard guard(options());
  EXPECT_FALSE(guard.full());
}

TEST_F(DiskGuardTest, WithoutABallastItIsNeverFull) {
  { const DiskGuard guard(options()); }
  DiskGuardOptions none = options();
  none.ballast_bytes = 0;
  DiskGuard guard(none);
  EXPECT_FALSE(std::filesystem::exists(none.path));
  EXPECT_FALSE(guard.MakeRoom());
  EXPECT_FALSE(guard.full());
}

}  // namespace
}  // namespace nightshift
