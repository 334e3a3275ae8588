#include "engine/policy/hardware_file.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "engine/policy/known_hardware.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

class HardwareFileTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return folder_.path() + "/" + name; }

  TemporaryFolder folder_;
};

TEST_F(HardwareFileTest, KeepsAProfileInAFolderThatItMakes) {
  const HardwareProfile profile = KnownHardware("h100").value();
  const std::string path = PathOf("cache/nightshift/hardware.json");
  ASSERT_OK(StoreHardwareProfile(path, profile));
  ASSERT_OK_AND_ASSIGN(const HardwareProfile loaded, LoadHardwareProfile(path));
  EXPECT_EQ(HardwareProfileToJson(loaded), HardwareProfileToJson(profile));
}

TEST_F(HardwareFileTest, ReplacesAnOlderProfileAndNothingElse) {
  ASSERT_OK(StoreHardwareProfile(PathOf("a"), KnownHardware("h100").value()));
  ASSERT_OK(StoreHardwareProfile(PathOf("a"), KnownHardware("t4").value()));
  EXPECT_EQ(LoadHardwareProfile(PathOf("a"))->name, "t4");
  std::ofstream(PathOf("thesis")) << "mine";
  EXPECT_THAT(StoreHardwareProfile(PathOf("thesis"), KnownHardware("t4").value()),
              StatusIs(absl::StatusCode::kAlreadyExists, "thesis"));
  EXPECT_THAT(StoreHardwareProfile(folder_.path(), KnownHardware("t4").value()),
              StatusIs(absl::StatusCode::kAlreadyExists, folder_.path()));
  std::string bytes;
  std::getline(std::ifstream(PathOf("thesis")), bytes);
  EXPECT_EQ(bytes, "mine");
}

TEST_F(HardwareFileTest, WritesNoProfileThatIsNotValid) {
  HardwareProfile profile = KnownHardware("t4").value();
  profile.copy_bytes_per_s = -1;
  EXPECT_THAT(StoreHardwareProfile(PathOf("a"), profile),
              StatusIs(absl::StatusCode::kInvalidArgument, "copy_bytes_per_s is -1"));
  EXPECT_FALSE(std::filesystem::exists(PathOf("a")));
}

TEST_F(HardwareFileTest, KeepsARefinementApartFromTheProfile) {
  HardwareProfile profile = KnownHardware("h100").value();
  EXPECT_THAT(LoadRefinement(PathOf("r"), profile), StatusIs(absl::StatusCode::kNotFound, ""));
  for (int i = 0; i < 40; ++i) {
    profile.refinement.Observe(LaneId::kRead, 1.0, 1.0 + 0.01 * i);
  }
  ASSERT_OK(StoreRefinement(PathOf("r"), profile));
  HardwareProfile measured = profile;
  measured.refinement = {};
  ASSERT_OK_AND_ASSIGN(const ProfileRefinement kept, LoadRefinement(PathOf("r"), measured));
  EXPECT_EQ(kept, profile.refinement);
}

TEST_F(HardwareFileTest, ARefinementHoldsForTheRatesItWasLearnedBesideOnly) {
  HardwareProfile profile = KnownHardware("h100").value();
  profile.refinement.Observe(LaneId::kRead, 1.0, 1.5);
  ASSERT_OK(StoreRefinement(PathOf("r"), profile));
  profile.copy_bytes_per_s *= 1.001;  // measured anew
  EXPECT_THAT(LoadRefinement(PathOf("r"), profile),
              StatusIs(absl::StatusCode::kFailedPrecondition, "other rates"));
}

TEST_F(HardwareFileTest, NamesTheFileOfABrokenRefinement) {
  const HardwareProfile profile = KnownHardware("h100").value();
  const std::string good = RefinementToJson(profile);
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[1]"),
                                  good.substr(0, good.size() / 2), std::string(2 << 20, ' ')}) {
    std::ofstream(PathOf("r")) << text;
    EXPECT_FALSE(LoadRefinement(PathOf("r"), profile).ok());
  }
  HardwareProfile learned = profile;
  learned.refinement.Observe(LaneId::kWrite, 1.0, 2.0);
  std::string far = RefinementToJson(learned);
  const size_t at = far.find("0.69");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(PathOf("r")) << far.replace(at, 4, "9.69");
  EXPECT_THAT(LoadRefinement(PathOf("r"), profile),
              StatusIs(absl::StatusCode::kInvalidArgument, PathOf("r")));
}

TEST_F(HardwareFileTest, SaysWhatToRunWithoutAProfile) {
  EXPECT_THAT(LoadHardwareProfile(PathOf("none")),
              StatusIs(absl::StatusCode::kNotFound, "nightshift calibrate"));
}

TEST_F(HardwareFileTest, NamesTheFileOfABrokenProfile) {
  std::ofstream(PathOf("a")) << "{\"format\": 1}";
  EXPECT_THAT(LoadHardwareProfile(PathOf("a")),
              StatusIs(absl::StatusCode::kInvalidArgument, PathOf("a") + ": hardware profile"));
}

TEST_F(HardwareFileTest, FindsKnownMachinesByNameAndFilesByPath) {
  EXPECT_EQ(FindHardwareProfile("a100")->name, "a100");
  HardwareProfile mine = KnownHardware("a100").value();
  mine.name = "mine";
  ASSERT_OK(StoreHardwareProfile(PathOf("a"), mine));
  EXPECT_EQ(FindHardwareProfile(PathOf("a"))->name, "mine");
  EXPECT_THAT(FindHardwareProfile("a101"),
              StatusIs(absl::StatusCode::kNotFound, "nor is there a file"));
  std::ofstream(PathOf("b")) << "{}";
  EXPECT_THAT(FindHardwareProfile(PathOf("b")),
              StatusIs(absl::StatusCode::kInvalidArgument, PathOf("b")));
}

TEST_F(HardwareFileTest, SaysWhyAProfileIsStale) {
  const MachineFacts machine = {.cpu = "A", .device = "cpu, 2 threads, AVX2", .disk = "ext4 a"};
  HardwareProfile profile = KnownHardware("desktop-avx2").value();
  profile.fingerprint = Fingerprint(machine);
  EXPECT_EQ(WhyStale(profile, machine), "");
  MachineFacts changed = machine;
  changed.device = "cpu, 4 threads, AVX2";
  EXPECT_EQ(WhyStale(profile, changed), "device was cpu, 2 threads, AVX2, is cpu, 4 threads, AVX2");
}

class HardwarePathTest : public ::testing::Test {
 protected:
  HardwarePathTest() {
    for (const char* name : {"NIGHTSHIFT_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      if (const char* value = ::getenv(name); value != nullptr) {
        saved_.emplace_back(name, value);
      }
      ::unsetenv(name);
    }
  }
  ~HardwarePathTest() override {
    for (const char* name : {"NIGHTSHIFT_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : saved_) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }

  std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(HardwarePathTest, IsInTheUsersCache) {
  EXPECT_EQ(DefaultHardwarePath(), "/var/cache/nightshift/hardware.json");
  ::setenv("HOME", "/home/a", 1);
  EXPECT_EQ(DefaultHardwarePath(), "/home/a/.cache/nightshift/hardware.json");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(DefaultHardwarePath(), "/home/a/.cache/nightshift/hardware.json");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(DefaultHardwarePath(), "/x/nightshift/hardware.json");
  ::setenv("NIGHTSHIFT_CACHE", "/n", 1);
  EXPECT_EQ(DefaultHardwarePath(), "/n/hardware.json");
}

}  // namespace
}  // namespace nightshift
