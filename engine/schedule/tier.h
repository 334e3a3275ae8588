// Tier: where bulk memory lies. On a device with unified memory the host's is the device's: what
// lies in kDevice is computed on in place, and kHost is not used.
#pragma once

#include <cstdint>

namespace nightshift {

enum class Tier : uint8_t { kDevice, kHost, kDisk };

}  // namespace nightshift
