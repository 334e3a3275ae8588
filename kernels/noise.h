// The random numbers of sampling: pure functions of a key and a token.
#pragma once

#include <cstdint>

namespace nightshift {

// Uniform in (0, 1), never 0 or 1: 52 bits of the SplitMix64 finaliser over key and token.
constexpr double UniformAt(uint64_t noise_key, int32_t token) {
  uint64_t x =
      noise_key + (static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  x ^= x >> 31;
  return (static_cast<double>(x >> 12) + 0.5) * 0x1p-52;
}

}  // namespace nightshift
