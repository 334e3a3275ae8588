#include "kernels/base/checksum.h"

#include <algorithm>

#include <isa-l/crc.h>
#include <xxhash.h>

#include "kernels/base/check.h"

namespace nightshift {

uint64_t Xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Xxh3Stream::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  ~State() { XXH3_freeState(xxh3); }
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  CHECK(state_->xxh3 != nullptr);
  XXH3_64bits_reset(state_->xxh3);
}
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::Digest() const {
  return XXH3_64bits_digest(state_->xxh3);
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  constexpr size_t kMaxCall = size_t{1} << 30;  // ISA-L takes the length as an int.
  uint32_t state = ~crc;
  for (size_t first = 0; first < bytes.size(); first += kMaxCall) {
    const size_t length = std::min(kMaxCall, bytes.size() - first);
    // ISA-L's signature lacks const; it only reads.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data() + first));
    state = crc32_iscsi(data, static_cast<int>(length), state);
  }
  return ~state;
}

}  // namespace nightshift
