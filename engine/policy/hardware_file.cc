#include "engine/policy/hardware_file.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"

#include "engine/policy/known_hardware.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/new_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMostFileBytes = int64_t{1} << 20;

std::string EnvironmentValue(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool IsAbsolute(const std::string& path) {
  return !path.empty() && path.front() == '/';
}

std::string CacheFolder() {
  if (std::string given = EnvironmentValue("NIGHTSHIFT_CACHE"); !given.empty()) {
    return given;
  }
  if (const std::string cache = EnvironmentValue("XDG_CACHE_HOME"); IsAbsolute(cache)) {
    return cache + "/nightshift";
  }
  if (const std::string home = EnvironmentValue("HOME"); IsAbsolute(home)) {
    return home + "/.cache/nightshift";
  }
  return "/var/cache/nightshift";
}

}  // namespace

std::string DefaultHardwarePath() {
  return CacheFolder() + "/hardware.json";
}

absl::StatusOr<HardwareProfile> LoadHardwareProfile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMostFileBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat("there is no hardware profile ", path,
                                            "; measure this machine: nightshift calibrate"));
  }
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<HardwareProfile> profile = HardwareProfileFromJson(*text);
  if (!profile.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", profile.status().message()));
  }
  return profile;
}

absl::StatusOr<HardwareProfile> FindHardwareProfile(const std::string& name_or_path) {
  absl::StatusOr<HardwareProfile> known = KnownHardware(name_or_path);
  if (known.ok()) {
    return known;
  }
  absl::StatusOr<HardwareProfile> loaded = LoadHardwareProfile(name_or_path);
  return absl::IsNotFound(loaded.status())
             ? absl::NotFoundError(
                   absl::StrCat(known.status().message(), "; nor is there a file of that name"))
             : loaded;
}

std::string WhyStale(const HardwareProfile& profile, const MachineFacts& machine) {
  MachineFacts facts = machine;
  if (!profile.unified_memory) {
    facts.device.clear();
  }
  return FingerprintDifference(profile.fingerprint, Fingerprint(facts));
}

absl::Status PrepareHardwarePath(const std::string& path) {
  const absl::StatusOr<HardwareProfile> older = LoadHardwareProfile(path);
  if (!older.ok() && !absl::IsNotFound(older.status())) {
    return absl::AlreadyExistsError(
        absl::StrCat("write a hardware profile to ", path, ": there is something that is none (",
                     older.status().message(), "); remove it or name another file"));
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
  }
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("make the folder ", folder.string(), ": ", error.message()));
  }
  return CheckWritable(path);
}

absl::Status StoreHardwareProfile(const std::string& path, const HardwareProfile& profile) {
  RETURN_IF_ERROR(ValidateHardwareProfile(profile));
  RETURN_IF_ERROR(PrepareHardwarePath(path));
  return ReplaceFile(path, HardwareProfileToJson(profile));
}

absl::StatusOr<ProfileRefinement> LoadRefinement(const std::string& path,
                                                 const HardwareProfile& profile) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMostFileBytes));
  absl::StatusOr<ProfileRefinement> refinement = RefinementFromJson(text, profile);
  return refinement.ok() ? refinement
                         : absl::Status(refinement.status().code(),
                                        absl::StrCat(path, ": ", refinement.status().message()));
}

absl::Status StoreRefinement(const std::string& path, const HardwareProfile& profile) {
  return ReplaceFile(path, RefinementToJson(profile));
}

}  // namespace nightshift
