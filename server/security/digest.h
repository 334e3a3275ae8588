// SHA-256, HMAC and random bytes, by OpenSSL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// SHA-256 of bytes that come in pieces. One thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(absl::string_view bytes);
  // The 32 bytes; nothing may be added after.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 32 bytes of HMAC-SHA-256.
std::string HmacSha256(absl::string_view key, absl::string_view message);

// Compares in a time that does not depend on where the texts differ.
bool EqualSecrets(absl::string_view a, absl::string_view b);

// `count` bytes from the system's generator. Thread-safe.
std::string RandomBytes(int count);
uint64_t RandomNumber();

}  // namespace nightshift
