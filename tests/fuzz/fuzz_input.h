// What every fuzz target does with the bytes that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/string_view.h"

#include "kernels/base/check.h"

namespace nightshift {

// Stands between the parts of an input that holds several; no text of JSON contains it.
inline constexpr char kPartSeparator = '\x1e';

inline absl::string_view InputText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Exactly `count` parts: missing ones are empty, the last one keeps further separators.
inline std::vector<std::string> InputParts(absl::string_view input, size_t count) {
  std::vector<std::string> parts(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t end = i + 1 < count ? input.find(kPartSeparator) : absl::string_view::npos;
    parts[i] = std::string(input.substr(0, end));
    input.remove_prefix(end == absl::string_view::npos ? input.size() : end + 1);
  }
  return parts;
}

// A file in memory: readers that want a path or a descriptor run without a disk.
class MemoryFile {
 public:
  // `bytes`, then zeros up to `total_bytes` if that is more; the zeros take no memory.
  explicit MemoryFile(absl::string_view bytes, size_t total_bytes = 0)
      : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    CHECK_GE(fd_, 0);
    CHECK_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    if (total_bytes > bytes.size()) {
      CHECK_EQ(ftruncate(fd_, static_cast<off_t>(total_bytes)), 0);
    }
    CHECK_EQ(lseek(fd_, 0, SEEK_SET), 0);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_ = -1;
};

}  // namespace nightshift
