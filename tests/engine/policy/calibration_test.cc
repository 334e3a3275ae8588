#include "engine/policy/calibration.h"

#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::HasSubstr;

// One call of each work.
CalibrationOptions Short(const std::string& folder) {
  return {.folder = folder,
          .host_bytes = int64_t{1} << 30,
          .memory_limit_bytes = int64_t{2} << 30,
          .memory_bytes = int64_t{64} << 20,
          .most_rows = 32,
          .disk_file_bytes = int64_t{64} << 20,
          .measure = {.turn_seconds = 0.0, .most_rounds = 1}};
}

void ExpectRates(const ComputeRates& rates) {
  ASSERT_EQ(rates.matmul.size(), 14U);
  for (const MatmulRate& rate : rates.matmul) {
    ASSERT_EQ(rate.flops.points.size(), 6U);
    EXPECT_EQ(rate.flops.points.front().size, 1);
    EXPECT_EQ(rate.flops.points.back().size, 32);
  }
  EXPECT_EQ(rates.prompt_attention.size(), 4U);
  EXPECT_EQ(rates.decode_attention.size(), 36U);
  std::set<DType> unpacked;
  for (const UnpackRate& rate : rates.unpack) {
    unpacked.insert(rate.dtype);
  }
  EXPECT_EQ(unpacked.size(), 15U);  // all but BF16
  EXPECT_GT(rates.step_seconds, 0.0);
}

TEST(CalibrationTest, MeasuresAllThatAPlanNeeds) {
  const TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const Calibration calibration, Calibrate(Short(folder.path()), RealClock()));
  const HardwareProfile& profile = calibration.profile;
  EXPECT_OK(ValidateHardwareProfile(profile));
  EXPECT_TRUE(profile.unified_memory);
  EXPECT_EQ(profile.host_bytes, int64_t{1} << 30);
  EXPECT_GT(profile.disk_bytes, 0);
  EXPECT_THAT(profile.fingerprint, HasSubstr("memory: 2.0 GiB"));
  EXPECT_EQ(profile.date.size(), 20U);
  EXPECT_TRUE(profile.upload.empty());
  ExpectRates(profile.device);
  EXPECT_TRUE(profile.host.decode_attention.empty());
  EXPECT_EQ(profile.spreads.count("copy_bytes_per_s"), 1U);
  EXPECT_EQ(calibration.counts.rounds, 1);
  EXPECT_OK(HardwareProfileFromJson(HardwareProfileToJson(profile)));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CalibrationTest, MeasuresADeviceWithMemoryOfItsOwnAtItsRates) {
  const TemporaryFolder folder;
  CalibrationOptions options = Short(folder.path());
  options.device_bytes = int64_t{3} << 30;
  options.discrete.upload_bytes_per_s = 200e6;
  options.measure.turn_seconds = 0.005;
  ASSERT_OK_AND_ASSIGN(const Calibration calibration, Calibrate(options, RealClock()));
  const HardwareProfile& profile = calibration.profile;
  EXPECT_FALSE(profile.unified_memory);
  EXPECT_EQ(profile.device_bytes, int64_t{3} << 30);
  ASSERT_EQ(profile.upload.points.size(), 4U);
  ASSERT_EQ(profile.download.points.size(), 4U);
  // A pacer makes up for waits that the machine made longer, so one turn may be faster; without it
  // copies take a fifth of that at most.
  EXPECT_LT(profile.upload.points.back().rate, 1e9);
  ExpectRates(profile.device);
  EXPECT_EQ(profile.host.decode_attention.size(), 36U);
  EXPECT_THAT(profile.fingerprint, HasSubstr("upload 0.2 GB/s"));
}

TEST(CalibrationTest, RefusesTooLittleMemoryWithNumbers) {
  const TemporaryFolder folder;
  CalibrationOptions options = Short(folder.path());
  options.host_bytes = 100'000'000;
  EXPECT_THAT(Calibrate(options, RealClock()),
              StatusIs(absl::StatusCode::kResourceExhausted, "100000000 are free"));
}

TEST(CalibrationTest, RefusesFoldersAndDevicesThatAreNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(Calibrate(Short(folder.path() + "/none"), RealClock()),
              StatusIs(absl::StatusCode::kNotFound, "/none"));
  CalibrationOptions options = Short(folder.path());
  options.discrete.num_threads = -1;
  EXPECT_THAT(Calibrate(options, RealClock()),
              StatusIs(absl::StatusCode::kInvalidArgument, "-1 threads"));
}

}  // namespace
}  // namespace nightshift
