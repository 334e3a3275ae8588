#include "server/security/identifiers.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "server/security/digest.h"

namespace nightshift {

std::string MakeUuid(int64_t wall_us) {
  std::string bytes = RandomBytes(16);
  const auto milliseconds = static_cast<uint64_t>(wall_us / 1000);
  for (size_t i = 0; i < 6; ++i) {
    bytes[i] = static_cast<char>(milliseconds >> (8 * (5 - i)) & 0xFFU);
  }
  bytes[6] = static_cast<char>((static_cast<unsigned char>(bytes[6]) & 0x0FU) | 0x70U);
  bytes[8] = static_cast<char>((static_cast<unsigned char>(bytes[8]) & 0x3FU) | 0x80U);
  const std::string hex = absl::BytesToHexString(bytes);
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

std::string MakeJobId() {
  constexpr absl::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
  uint64_t random = RandomNumber();
  std::string id = "job-";
  for (int i = 0; i < 12; ++i) {
    id.push_back(kAlphabet[random % kAlphabet.size()]);
    random /= kAlphabet.size();
  }
  return id;
}

bool IsUuid(absl::string_view text) {
  if (text.size() != 36) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) {
      return false;
    }
  }
  return true;
}

bool IsTenant(absl::string_view text) {
  return IsJobId(text);
}

bool IsJobId(absl::string_view text) {
  constexpr size_t kMaxBytes = 63;
  return !text.empty() && text.size() <= kMaxBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

}  // namespace nightshift
