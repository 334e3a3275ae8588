#include "server/security/digest.h"

#include <array>
#include <cstring>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

constexpr unsigned int kDigestBytes = 32;

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(state_->context != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(absl::string_view bytes) {
  CHECK_EQ(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()), 1);
}

std::string Sha256::Finish() {
  std::array<unsigned char, kDigestBytes> digest = {};
  unsigned int size = 0;
  CHECK_EQ(EVP_DigestFinal_ex(state_->context, digest.data(), &size), 1);
  return std::string(digest.begin(), digest.begin() + size);
}

std::string HmacSha256(absl::string_view key, absl::string_view message) {
  const std::vector<unsigned char> text(message.begin(), message.end());
  std::array<unsigned char, kDigestBytes> code = {};
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(),
             code.data(), &size) != nullptr);
  return std::string(code.begin(), code.begin() + size);
}

bool EqualSecrets(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(int count) {
  std::vector<unsigned char> random(static_cast<size_t>(count));
  CHECK_EQ(RAND_bytes(random.data(), count), 1);
  return std::string(random.begin(), random.end());
}

uint64_t RandomNumber() {
  const std::string bytes = RandomBytes(sizeof(uint64_t));
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

}  // namespace nightshift
