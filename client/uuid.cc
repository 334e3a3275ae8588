#include "client/uuid.h"

#include <utility>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

namespace nightshift {
namespace {

constexpr size_t kUuidBytes = 16;
// UUIDv5 of "nightshift.v1" in RFC 4122's namespace of domain names.
constexpr unsigned char kNamespace[kUuidBytes] = {0x25, 0xf3, 0x29, 0xb3, 0x5b, 0x80, 0x5e, 0x82,
                                                  0xa5, 0x73, 0x28, 0x57, 0xea, 0x4e, 0xbf, 0xcc};

// Sets version and variant (RFC 4122, 4.1) and writes 8-4-4-4-12 hexadecimal digits.
std::string Format(std::string bytes, int version) {
  bytes.resize(kUuidBytes);
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | (version << 4));
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);
  const std::string hex = absl::BytesToHexString(bytes);
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace

std::string UuidV5(absl::string_view namespace_bytes, absl::string_view name) {
  const std::string hashed = absl::StrCat(namespace_bytes, name);
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  auto* target = reinterpret_cast<unsigned char*>(digest.data());
  CHECK(EVP_Digest(hashed.data(), hashed.size(), target, nullptr, EVP_sha1(), nullptr) == 1);
  return Format(std::move(digest), 5);
}

std::string RandomUuid() {
  std::string bytes(kUuidBytes, '\0');
  CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), kUuidBytes) == 1);
  return Format(std::move(bytes), 4);
}

std::string RequestIdOf(absl::string_view content, absl::string_view spec,
                        absl::string_view run_key) {
  const absl::string_view name_space(reinterpret_cast<const char*>(kNamespace), kUuidBytes);
  return UuidV5(name_space, absl::StrCat(content, spec.size(), ":", spec, run_key));
}

}  // namespace nightshift
