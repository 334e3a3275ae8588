// Memory for direct transfers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "engine/io/disk_file.h"
#include "kernels/base/check.h"

namespace nightshift {

// `bytes` zero bytes at a multiple of kDiskAlignment; bytes is one too.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kDiskAlignment, bytes)), std::free),
        bytes_(bytes) {
    CHECK(memory_ != nullptr);
    std::fill_n(memory_.get(), bytes, std::byte{0});
  }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  size_t bytes_;
};

}  // namespace nightshift
