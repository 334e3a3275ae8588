// What a machine without a GPU is as a device with memory of its own: the discrete mode of the CPU
// device (kernels/device.h). Pure.
#pragma once

#include "engine/policy/hardware_profile.h"
#include "engine/tier_options.h"

namespace nightshift {

// `profile` is of a machine with one memory; `tiers` gives the device's memory and the caps on its
// links and arithmetic, which are never above what the machine does.
HardwareProfile DiscreteForm(const HardwareProfile& profile, const TierOptions& tiers);

}  // namespace nightshift
