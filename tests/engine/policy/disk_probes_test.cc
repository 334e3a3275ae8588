#include "engine/policy/disk_probes.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/memory/pool.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr int64_t kFile = DiskProbes::kLeastFile;

class DiskProbesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<DiskProbes>> Create(const std::string& folder, int64_t bytes) {
    return DiskProbes::Create(folder, bytes, 10.0, memory_.bytes(), clock_);
  }

  Pool pool_{"test", DiskProbes::kMemory};
  Buffer memory_ = pool_.Reserve(DiskProbes::kMemory, "test").value();
  RealClock clock_;
  TemporaryFolder folder_;
};

TEST_F(DiskProbesTest, MeasureEachSizeAndDepthAndLeaveNothingBehind) {
  ASSERT_OK_AND_ASSIGN(const auto probes, Create(folder_.path(), kFile));
  EXPECT_EQ(probes->file_bytes(), kFile);
  HardwareProfile profile;
  std::vector<Measurement> measurements;
  probes->AddTo(profile, measurements);
  ASSERT_OK(MeasureInTurns(measurements, {.turn_seconds = 0.0, .most_rounds = 1}, clock_));
  EXPECT_EQ(profile.disk_read.points.size(), 7U);
  EXPECT_EQ(profile.disk_write.points.size(), 7U);
  EXPECT_EQ(profile.disk_read_by_depth.points.size(), 6U);
  EXPECT_EQ(profile.disk_read.points.front().size, 4096);
  EXPECT_EQ(profile.disk_read.points.back().size, 16 << 20);
  for (const RateCurve& curve :
       {profile.disk_read, profile.disk_write, profile.disk_read_by_depth}) {
    for (const RatePoint& point : curve.points) {
      EXPECT_GT(point.rate, 0.0);
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// The clock makes each look at it cost a second.
TEST_F(DiskProbesTest, TakeASmallerFileOnASlowDisk) {
  class SlowClock : public FakeClock {
   public:
    int64_t MonotonicMicros() const override {
      now_us_ += 1'000'000;
      return now_us_;
    }

   private:
    mutable int64_t now_us_ = 0;
  };
  const SlowClock clock;
  ASSERT_OK_AND_ASSIGN(const auto probes,
                       DiskProbes::Create(folder_.path(), 4 * kFile, 1.5, memory_.bytes(), clock));
  EXPECT_EQ(probes->file_bytes(), kFile);
}

TEST_F(DiskProbesTest, RefuseAFolderThatIsNone) {
  EXPECT_THAT(Create(folder_.path() + "/none", kFile),
              StatusIs(absl::StatusCode::kNotFound, folder_.path() + "/none"));
  std::ofstream(folder_.path() + "/file") << "x";
  EXPECT_THAT(Create(folder_.path() + "/file", kFile),
              StatusIs(absl::StatusCode::kInvalidArgument, "is not a folder"));
}

TEST_F(DiskProbesTest, RefuseADiskWithoutRoomWithNumbers) {
  const int64_t bytes = int64_t{1} << 50;
  ASSERT_OK_AND_ASSIGN(const int64_t free_bytes, FreeDiskBytes(folder_.path()));
  ASSERT_LT(free_bytes, bytes);
  EXPECT_THAT(Create(folder_.path(), bytes),
              StatusIs(absl::StatusCode::kResourceExhausted, std::to_string(bytes)));
}

}  // namespace
}  // namespace nightshift
