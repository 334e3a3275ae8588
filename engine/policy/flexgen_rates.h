// The rates of FlexGen's cost model from a machine's profile. Pure.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"

#include "engine/policy/flexgen_cost.h"
#include "engine/policy/hardware_profile.h"

namespace nightshift {

// At the sizes of a run of `shape`: transfers of 4 MiB, prompts of `prompt_tokens`, decode in
// batches of 64 rows; bf16. What was not measured for the shape's heads is taken from the nearest
// width. The profile counts attention over the pairs that causality allows, FlexGen over all.
// With unified memory nothing is uploaded or downloaded.
FlexGenRates FlexGenRatesOf(const HardwareProfile& hardware, const FlexGenShape& shape,
                            int64_t prompt_tokens);

// Device, host, disk. With unified memory device and host are one: the device's, of which the host
// has what is staged there.
std::array<double, 3> TierBytesOf(const HardwareProfile& hardware);

}  // namespace nightshift
