#include "server/tools/calibrate.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/policy/hardware_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CalibrateTest : public ::testing::Test {
 protected:
  CalibrateTest() {
    options_.output = folder_.path() + "/profile.json";
    options_.calibration = {.folder = folder_.path(),
                            .host_bytes = int64_t{1} << 30,
                            .memory_limit_bytes = int64_t{1} << 30,
                            .memory_bytes = int64_t{64} << 20,
                            .most_rows = 32,
                            .disk_file_bytes = int64_t{64} << 20,
                            .measure = {.turn_seconds = 0.0, .most_rounds = 1}};
  }

  TemporaryFolder folder_;
  CalibrateOptions options_;
};

TEST_F(CalibrateTest, WritesTheProfileAndATableForPeople) {
  ASSERT_OK_AND_ASSIGN(const Calibration calibration, RunCalibrate(options_, RealClock()));
  ASSERT_OK_AND_ASSIGN(const HardwareProfile profile, LoadHardwareProfile(options_.output));
  EXPECT_EQ(HardwareProfileToJson(profile), HardwareProfileToJson(calibration.profile));
  const std::string text = CalibrationText(options_, calibration);
  for (const char* words : {"processor: ", "host 1.0 GiB", "disk reads ", "4 KiB: ", "16 MiB: ",
                            "bf16 by BF16", "Q4_K ", "us\n", options_.output.c_str()}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  EXPECT_THAT(text, HasSubstr("by how much rates vary is not known"));
  EXPECT_THAT(text, Not(HasSubstr("%")));
}

TEST_F(CalibrateTest, SeesBeforeItMeasuresThatTheProfileHasNoPlace) {
  std::ofstream(options_.output) << "mine";
  options_.calibration.folder = folder_.path() + "/none";  // would be refused, too
  EXPECT_THAT(RunCalibrate(options_, RealClock()),
              StatusIs(absl::StatusCode::kAlreadyExists, options_.output));
}

TEST_F(CalibrateTest, SeesBeforeItMeasuresThatTheProfileCannotBeWritten) {
  options_.calibration.folder = folder_.path() + "/none";  // would be refused, too
  options_.output = folder_.path();
  EXPECT_THAT(RunCalibrate(options_, RealClock()),
              StatusIs(absl::StatusCode::kAlreadyExists, "there is something that is none"));
  options_.output = "/proc/profile.json";
  EXPECT_THAT(RunCalibrate(options_, RealClock()).status().message(), HasSubstr("/proc/profile"));
}

TEST_F(CalibrateTest, SaysWhenTheProfileIsNoLongerOfThisMachine) {
  const int64_t limit = options_.calibration.memory_limit_bytes;
  ASSERT_OK_AND_ASSIGN(const Calibration measured, RunCalibrate(options_, RealClock()));
  EXPECT_EQ(ProfileNote("", measured.profile, folder_.path(), limit), "");
  EXPECT_EQ(ProfileNote("mine.json", measured.profile, folder_.path(), limit), "");
  EXPECT_THAT(ProfileNote("", measured.profile, folder_.path(), 2 * limit),
              AllOf(HasSubstr("is stale: memory was 1.0 GiB, is 2.0 GiB"),
                    HasSubstr("nightshift calibrate")));
}

TEST_F(CalibrateTest, SaysOfWhichMachineAProfileIsThatIsNotOfThisOne) {
  const int64_t limit = options_.calibration.memory_limit_bytes;
  ASSERT_OK_AND_ASSIGN(HardwareProfile known, FindHardwareProfile("t4"));
  EXPECT_THAT(ProfileNote("t4", known, folder_.path(), limit),
              AllOf(HasSubstr("--hardware t4: the profile t4 is of published figures"),
                    HasSubstr("this machine is processor: "), HasSubstr("memory: 1.0 GiB")));
  known.fingerprint = "processor: another\ndevice: another";
  EXPECT_THAT(ProfileNote("far.json", known, folder_.path(), limit),
              AllOf(HasSubstr("is of another machine: processor was another, is "),
                    Not(HasSubstr("device was")), HasSubstr("plans are for that machine")));
}

TEST_F(CalibrateTest, RefusesOptionsOutOfRangeByNameAndValue) {
  CalibrateOptions options = options_;
  options.calibration.measure.most_seconds = 1.0;
  EXPECT_THAT(options.Resolve(), StatusIs(absl::StatusCode::kInvalidArgument, "--seconds is 1,"));
  options.calibration.measure.most_seconds = 10.0;
  options.calibration.discrete.num_threads = -2;
  EXPECT_THAT(options.Resolve(), StatusIs(absl::StatusCode::kInvalidArgument, "--threads is -2"));
}

TEST_F(CalibrateTest, MeasuresTheDiskOfTheCacheUnlessTold) {
  CalibrateOptions options = options_;
  ASSERT_OK(options.Resolve());
  EXPECT_EQ(options.calibration.folder, folder_.path());
  options.calibration.folder.clear();
  options.output.clear();
  ::setenv("NIGHTSHIFT_CACHE", (folder_.path() + "/cache").c_str(), 1);
  ASSERT_OK(options.Resolve());
  ::unsetenv("NIGHTSHIFT_CACHE");
  EXPECT_EQ(options.calibration.folder, folder_.path() + "/cache");
  EXPECT_EQ(options.output, folder_.path() + "/cache/hardware.json");
  EXPECT_TRUE(std::filesystem::is_directory(options.calibration.folder));
}

}  // namespace
}  // namespace nightshift
