#include "engine/policy/hardware_profile.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/policy/known_hardware.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Every member of the JSON is in one of the two.
HardwareProfile Discrete() {
  HardwareProfile profile = KnownHardware("t4").value();
  profile.date = "2024-02-03T04:05:06Z";
  profile.fingerprint = "cpu \"x\"";
  profile.disk_read.points[0].spread = 0.125;
  profile.disk_read_by_depth = {.points = {{1, 1e8, 0.5}, {32, 1e9}}};
  profile.spreads = {{"copy_bytes_per_s", 0.25}, {"device.row_bytes_per_s", 0.1}};
  for (int i = 1; i <= 7; ++i) {
    profile.refinement.Observe(LaneId::kRead, 1.0, 1.0 + 0.1 * i);
  }
  return profile;
}
HardwareProfile Unified() {
  return KnownHardware("desktop-avx2").value();
}

TEST(RateCurveTest, InterpolatesOverTheLogarithmOfTheSize) {
  const RateCurve curve = {.points = {{4, 10}, {16, 30}, {1024, 60}}};
  EXPECT_DOUBLE_EQ(curve.At(4), 10);
  EXPECT_DOUBLE_EQ(curve.At(8), 20);
  EXPECT_DOUBLE_EQ(curve.At(16), 30);
  EXPECT_DOUBLE_EQ(curve.At(128), 45);
}

TEST(RateCurveTest, StaysBeyondItsEnds) {
  const RateCurve curve = {.points = {{4, 10}, {16, 30}}};
  EXPECT_DOUBLE_EQ(curve.At(1), 10);
  EXPECT_DOUBLE_EQ(curve.At(0), 10);
  EXPECT_DOUBLE_EQ(curve.At(-1), 10);
  EXPECT_DOUBLE_EQ(curve.At(17), 30);
  EXPECT_DOUBLE_EQ(curve.At(kInfinity), 30);
  EXPECT_DOUBLE_EQ((RateCurve{.points = {{7, 3}}}.At(1000)), 3);
}

TEST(HardwareProfileTest, ComesBackFromItsJson) {
  for (const HardwareProfile& profile : {Discrete(), Unified()}) {
    const std::string text = HardwareProfileToJson(profile);
    ASSERT_OK_AND_ASSIGN(const HardwareProfile again, HardwareProfileFromJson(text));
    EXPECT_EQ(HardwareProfileToJson(again), text);
    EXPECT_EQ(again.fingerprint, profile.fingerprint);
    EXPECT_EQ(again.host_bytes, profile.host_bytes);
    EXPECT_EQ(again.unified_memory, profile.unified_memory);
    EXPECT_EQ(again.device.matmul.size(), profile.device.matmul.size());
    EXPECT_EQ(again.device.matmul.back().weights, profile.device.matmul.back().weights);
    EXPECT_EQ(again.device.unpack.back().dtype, profile.device.unpack.back().dtype);
    EXPECT_DOUBLE_EQ(again.device.step_seconds, profile.device.step_seconds);
    EXPECT_DOUBLE_EQ(again.disk_read.points[0].spread, profile.disk_read.points[0].spread);
    EXPECT_EQ(again.spreads, profile.spreads);
    EXPECT_EQ(again.refinement, profile.refinement);
  }
}

TEST(HardwareProfileTest, KeepsWhatSweepsHaveShownApartFromWhatWasMeasured) {
  HardwareProfile profile = Discrete();
  const Json refined = Json::parse(HardwareProfileToJson(profile));
  profile.refinement = {};
  Json measured = Json::parse(HardwareProfileToJson(profile));
  EXPECT_FALSE(measured.contains("refinement"));
  measured["refinement"] = refined["refinement"];
  EXPECT_EQ(measured, refined);
  EXPECT_EQ(refined["refinement"]["read"].size(), 7U);
}

struct Fault {
  std::string words;  // of the message
  std::function<void(HardwareProfile&)> make;
};

TEST(HardwareProfileTest, RefusesNumbersOutOfRangeByFieldAndValue) {
  using Profile = HardwareProfile;
  const std::vector<Fault> faults = {
      {"host_bytes is 0", [](Profile& p) { p.host_bytes = 0; }},
      {"host_bytes is -5", [](Profile& p) { p.host_bytes = -5; }},
      {"device_bytes is 0", [](Profile& p) { p.device_bytes = 0; }},
      {"disk_bytes is -1", [](Profile& p) { p.disk_bytes = -1; }},
      {"disk_bytes is 9223372036854775807", [](Profile& p) { p.disk_bytes = INT64_MAX; }},
      {"disk_read has 0 entries", [](Profile& p) { p.disk_read = {}; }},
      {"disk_write has 0 entries", [](Profile& p) { p.disk_write = {}; }},
      {"disk_read[1].bytes_per_s is -2", [](Profile& p) { p.disk_read.points[1].rate = -2; }},
      {"disk_read[1].bytes is 4096", [](Profile& p) { p.disk_read.points[1].size = 4096; }},
      {"disk_read[0].bytes is 0", [](Profile& p) { p.disk_read.points[0].size = 0; }},
      {"disk_read[0].bytes is nan", [](Profile& p) { p.disk_read.points[0].size = kNan; }},
      {"disk_read[2].bytes is inf", [](Profile& p) { p.disk_read.points[2].size = kInfinity; }},
      {"disk_read[0].spread is -1", [](Profile& p) { p.disk_read.points[0].spread = -1; }},
      {"upload has 0 entries", [](Profile& p) { p.upload = {}; }},
      {"download[0].bytes_per_s is inf", [](Profile& p) { p.download.points[0].rate = kInfinity; }},
      {"copy_bytes_per_s is 0", [](Profile& p) { p.copy_bytes_per_s = 0; }},
      {"pageable_upload_bytes_per_s is -1", [](Profile& p) { p.pageable_upload_bytes_per_s = -1; }},
      {"device.matmul has 0 entries", [](Profile& p) { p.device.matmul.clear(); }},
      {"device.matmul[1] is for bf16, BF16 and 4096 inputs, as is entry 0",
       [](Profile& p) { p.device.matmul[1] = p.device.matmul[0]; }},
      {"device.matmul[0].rates has 0 entries", [](Profile& p) { p.device.matmul[0].flops = {}; }},
      {"device.matmul[0].rates[2].flops_per_s is nan",
       [](Profile& p) { p.device.matmul[0].flops.points[2].rate = kNan; }},
      {"device.matmul[0].rates[2].flops_per_s is 1e+300",
       [](Profile& p) { p.device.matmul[0].flops.points[2].rate = 1e300; }},
      {"device.matmul[0].rates[2].flops_per_s is 1e-300",
       [](Profile& p) { p.device.matmul[0].flops.points[2].rate = 1e-300; }},
      {"device.prompt_attention has 0", [](Profile& p) { p.device.prompt_attention.clear(); }},
      {"device.decode_attention[0].head_width is 0",
       [](Profile& p) { p.device.decode_attention[0].head_width = 0; }},
      {"device.decode_attention[0].queries_per_kv_head is -1",
       [](Profile& p) { p.device.decode_attention[0].queries_per_kv_head = -1; }},
      {"device.decode_attention[0].kv is BF16",
       [](Profile& p) { p.device.decode_attention[0].kv = DType::kBF16; }},
      {"host.decode_attention has 0", [](Profile& p) { p.host.decode_attention.clear(); }},
      {"host.memory_bytes_per_s is 0", [](Profile& p) { p.host.memory_bytes_per_s = 0; }},
      {"device.unpack[0].elements_per_s is 0",
       [](Profile& p) { p.device.unpack[0].elements_per_s = 0; }},
      {"device.row_bytes_per_s is nan", [](Profile& p) { p.device.row_bytes_per_s = kNan; }},
      {"device.step_seconds is -1", [](Profile& p) { p.device.step_seconds = -1; }},
      {"device.step_seconds is 60", [](Profile& p) { p.device.step_seconds = 60; }},
      {"spreads.copy_bytes_per_s is nan", [](Profile& p) { p.spreads["copy_bytes_per_s"] = kNan; }},
      {"name has 5000 bytes", [](Profile& p) { p.name = std::string(5000, 'x'); }},
  };
  EXPECT_OK(ValidateHardwareProfile(Discrete()));
  for (const Fault& fault : faults) {
    HardwareProfile profile = Discrete();
    fault.make(profile);
    EXPECT_THAT(ValidateHardwareProfile(profile),
                StatusIs(absl::StatusCode::kInvalidArgument, fault.words));
  }
}

TEST(HardwareProfileTest, HasNoLinkWhereHostAndDeviceShareOneMemory) {
  HardwareProfile profile = Unified();
  profile.upload = Discrete().upload;
  EXPECT_THAT(ValidateHardwareProfile(profile),
              StatusIs(absl::StatusCode::kInvalidArgument, "upload has entries"));
  profile = Unified();
  profile.device_bytes = 1;
  EXPECT_THAT(ValidateHardwareProfile(profile),
              StatusIs(absl::StatusCode::kInvalidArgument, "device_bytes is 1"));
}

TEST(HardwareProfileTest, TakesOverheadsAndFreeDiskOfZero) {
  HardwareProfile profile = Unified();
  profile.device.step_seconds = 0;
  profile.disk_bytes = 0;
  EXPECT_OK(ValidateHardwareProfile(profile));
}

Json Document() {
  return Json::parse(HardwareProfileToJson(Discrete()));
}

TEST(HardwareProfileTest, RefusesEachMissingMemberByName) {
  const Json document = Document();
  for (const auto& [name, value] : document.items()) {
    Json without = document;
    without.erase(name);
    const auto profile = HardwareProfileFromJson(without.dump());
    const bool is_optional =
        name == "date" || name == "fingerprint" || name == "spreads" || name == "refinement";
    if (is_optional) {
      EXPECT_OK(profile) << name;
    } else {
      EXPECT_THAT(profile, StatusIs(absl::StatusCode::kInvalidArgument, name));
    }
  }
  for (const char* name : {"matmul", "unpack", "row_bytes_per_s", "step_seconds"}) {
    Json without = document;
    without["device"].erase(name);
    EXPECT_THAT(HardwareProfileFromJson(without.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, name));
  }
}

TEST(HardwareProfileTest, RefusesWhatItDoesNotKnowByName) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"/disc_read", "disc_read"},
      {"/device/matmul/0/colour", "hardware profile, device.matmul[0]: there is no member colour"},
      {"/disk_read/0/rate", "hardware profile, disk_read[0]: there is no member rate"},
      {"/device/flops", "flops"},
      {"/refinement/coffee", "coffee"}};
  for (const auto& [pointer, words] : changes) {
    Json document = Document();
    document[Json::json_pointer(pointer)] = 1;
    EXPECT_THAT(HardwareProfileFromJson(document.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, words));
  }
}

TEST(HardwareProfileTest, RefusesMembersOfAnotherType) {
  const std::vector<std::pair<std::string, std::string>> places = {
      {"/format", "format"},
      {"/host_bytes", "host_bytes"},
      {"/disk_read", "disk_read"},
      {"/disk_read/0", "disk_read[0]"},
      {"/device", "device"},
      {"/device/matmul", "matmul"},
      {"/device/matmul/0", "matmul[0]"},
      {"/device/matmul/0/compute", "compute"},
      {"/device/matmul/0/weights", "weights"},
      {"/device/matmul/0/rates", "rates"},
      {"/spreads", "spreads"},
      {"/refinement", "refinement"},
      {"/refinement/read", "read"},
      {"/refinement/read/0", "read"}};
  for (const auto& [pointer, words] : places) {
    Json document = Document();
    document[Json::json_pointer(pointer)] = "coffee";
    EXPECT_THAT(HardwareProfileFromJson(document.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, words));
  }
}

TEST(HardwareProfileTest, RefusesTextsThatAreNoProfiles) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), std::string("nan"),
        std::string(100, '['), std::string("{\"name\": 1e999}"), std::string("\xff\xfe")}) {
    EXPECT_THAT(HardwareProfileFromJson(text),
                StatusIs(absl::StatusCode::kInvalidArgument, "hardware profile"));
  }
  EXPECT_THAT(HardwareProfileFromJson(std::string(2 << 20, ' ')),
              StatusIs(absl::StatusCode::kInvalidArgument, "must have at most"));
}

TEST(HardwareProfileTest, BoundsItsListsAndRatios) {
  Json document = Document();
  for (int i = 0; i < 65; ++i) {
    document["device"]["unpack"].push_back(document["device"]["unpack"][0]);
  }
  EXPECT_THAT(HardwareProfileFromJson(document.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "unpack"));
  document = Document();
  document["refinement"]["read"] = std::vector<double>(40, 0.0);
  EXPECT_THAT(HardwareProfileFromJson(document.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "more than 33 ratios"));
  document["refinement"]["read"] = {1e9};
  EXPECT_THAT(HardwareProfileFromJson(document.dump()),
              StatusIs(absl::StatusCode::kInvalidArgument, "is not within"));
}

// One of each, so that a change hits everything.
HardwareProfile Small() {
  HardwareProfile profile = Discrete();
  for (ComputeRates* rates : {&profile.device, &profile.host}) {
    rates->matmul.resize(1);
    rates->matmul[0].flops.points.resize(2);
    rates->prompt_attention.resize(1);
    rates->decode_attention.resize(1);
    rates->unpack.resize(1);
  }
  profile.source = "a paper";
  return profile;
}

// What a parser accepts is valid, and says the same again.
TEST(HardwareProfileTest, AcceptsOfDamagedTextsOnlyWhatIsValid) {
  const std::string text = HardwareProfileToJson(Small());
  std::mt19937 random(7);
  const std::string bytes = "0123456789-+.eE{}[]\",:ntf \xff";
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int change = 0; change < changes; ++change) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = bytes[random() % bytes.size()];
          break;
        case 1:
          damaged.erase(at, 1 + random() % 8);
          break;
        case 2:
          damaged.insert(at, 1, bytes[random() % bytes.size()]);
          break;
        default:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 40));
      }
    }
    const auto profile = HardwareProfileFromJson(damaged);
    if (!profile.ok()) {
      EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    EXPECT_OK(ValidateHardwareProfile(*profile));
    const std::string written = HardwareProfileToJson(*profile);
    ASSERT_OK_AND_ASSIGN(const HardwareProfile again, HardwareProfileFromJson(written));
    EXPECT_EQ(HardwareProfileToJson(again), written);
  }
  EXPECT_GT(accepted, 50);  // some changes hit a digit only
}

}  // namespace
}  // namespace nightshift
