// Input: a machine's profile. What is accepted is valid and is written and read back the same.
#include <string>

#include "absl/status/statusor.h"

#include "engine/policy/hardware_profile.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto profile = HardwareProfileFromJson(InputText(data, size));
  if (!profile.ok()) {
    CHECK(absl::IsInvalidArgument(profile.status()));
    return 0;
  }
  CHECK(ValidateHardwareProfile(*profile).ok());
  const std::string text = HardwareProfileToJson(*profile);
  const auto again = HardwareProfileFromJson(text);
  CHECK(again.ok());
  CHECK(HardwareProfileToJson(*again) == text);
  CHECK(profile->disk_read.At(1 << 20) > 0.0);
  return 0;
}

}  // namespace nightshift
