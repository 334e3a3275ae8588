#include "engine/policy/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr char kMountInfo[] =
    "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "30 22 0:26 / /dev/shm rw - tmpfs shm rw,size=64k\n"
    "31 22 259:3 / /data rw,noatime - xfs /dev/nvme0n1p1 rw\n"
    "32 31 259:4 /sub /data/fast\\040disk rw - btrfs /dev/nvme1n1 rw\n"
    "33 22 0:50 / /data rw - overlay upper rw\n"
    "34 broken\n";

TEST(FileSystemOfTest, FindsTheNearestMountAboveAPath) {
  EXPECT_EQ(FileSystemOf(kMountInfo, "/"), "ext4 /dev/vda1");
  EXPECT_EQ(FileSystemOf(kMountInfo, "/home/a"), "ext4 /dev/vda1");
  EXPECT_EQ(FileSystemOf(kMountInfo, "/dev/shm"), "tmpfs shm");
  EXPECT_EQ(FileSystemOf(kMountInfo, "/dev/shm/x"), "tmpfs shm");
  EXPECT_EQ(FileSystemOf(kMountInfo, "/dev/shmx"), "ext4 /dev/vda1");
}

TEST(FileSystemOfTest, ReadsBlanksAndTakesTheLaterOfTwoAtOnePlace) {
  EXPECT_EQ(FileSystemOf(kMountInfo, "/data/fast disk/packs"), "btrfs /dev/nvme1n1");
  EXPECT_EQ(FileSystemOf(kMountInfo, "/data/packs"), "overlay upper");
}

TEST(FileSystemOfTest, SaysWhenItDoesNotKnow) {
  EXPECT_EQ(FileSystemOf("", "/a"), "unknown");
  EXPECT_EQ(FileSystemOf("nonsense - \n - - -\n", "/a"), "unknown");
}

MachineFacts Facts() {
  return {.cpu = "AMD EPYC",
          .device = "cpu, 2 threads, AVX2",
          .memory_bytes = int64_t{4} << 30,
          .disk = "ext4 /dev/vda1",
          .disk_backend = DiskBackend::kIoUring};
}

TEST(MachineTest, FindsNoDifferenceInTheSameMachine) {
  EXPECT_EQ(FingerprintDifference(Fingerprint(Facts()), Fingerprint(Facts())), "");
}

TEST(MachineTest, SaysWhatDiffers) {
  const std::string before = Fingerprint(Facts());
  MachineFacts facts = Facts();
  facts.memory_bytes = int64_t{2} << 30;
  EXPECT_EQ(FingerprintDifference(before, Fingerprint(facts)), "memory was 4.0 GiB, is 2.0 GiB");
  facts.disk_backend = DiskBackend::kThreads;
  EXPECT_EQ(FingerprintDifference(before, Fingerprint(facts)),
            "memory was 4.0 GiB, is 2.0 GiB; disk transfers was io_uring, is threads");
  EXPECT_THAT(FingerprintDifference("", before),
              ::testing::HasSubstr("disk was not known, is ext4"));
}

TEST(MachineTest, AsksTheKernel) {
  const TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const MachineFacts facts, ThisMachine("cpu", 1 << 30, folder.path()));
  EXPECT_NE(facts.disk, "unknown");
  EXPECT_NE(facts.cpu, "");
  EXPECT_EQ(facts.memory_bytes, 1 << 30);
  EXPECT_THAT(ThisMachine("cpu", 1 << 30, folder.path() + "/none"),
              StatusIs(absl::StatusCode::kNotFound, "/none"));
}

}  // namespace
}  // namespace nightshift
