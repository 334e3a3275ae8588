// The two checksums of the product: xxHash for packs, CRC32C for records and chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace nightshift {

// XXH3 64-bit of `bytes`, seed 0. Source: xxHash 0.8 specification.
uint64_t Xxh3(std::span<const std::byte> bytes);

// XXH3 64-bit of bytes that come in pieces: the same number as Xxh3 of all of them together.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void Update(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// CRC32C (Castagnoli, as iSCSI: initial and final inversion), continued from `crc` (0 at first).
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace nightshift
