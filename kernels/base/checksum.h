// The two checksums of the product: xxHash for packs, CRC32C for records and chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nightshift {

// XXH3 64-bit of `bytes`, seed 0. Source: xxHash 0.8 specification.
uint64_t Xxh3(std::span<const std::byte> bytes);

// CRC32C (Castagnoli, as iSCSI: initial and final inversion), continued from `crc` (0 at first).
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace nightshift
