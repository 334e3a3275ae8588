#include "client/documents/byte_reader.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "client/documents/text_check.h"

namespace nightshift {

absl::StatusOr<ByteReader> ByteReader::Open(const std::string& path) {
  const std::string name = ReadableName(path);
  // A pipe must not make us wait for somebody who writes to it.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return ErrnoStatus("open", name);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("open ", name, S_ISDIR(info.st_mode) ? ": is a folder" : ": is no file"));
  }
  return ByteReader(std::move(file), name, info.st_size);
}

std::optional<char> ByteReader::Peek() {
  if (at_ == buffer_.size() && status_.ok()) {
    constexpr size_t kBufferBytes = 256 << 10;
    buffer_.resize(kBufferBytes);
    ssize_t count = -1;
    do {
      count = read(file_.get(), buffer_.data(), buffer_.size());
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      status_ = ErrnoStatus("read", name_);
    }
    buffer_.resize(count < 0 ? 0 : static_cast<size_t>(count));
    at_ = 0;
  }
  return at_ < buffer_.size() ? std::optional(buffer_[at_]) : std::nullopt;
}

std::optional<char> ByteReader::Next() {
  const std::optional<char> byte = Peek();
  at_ += byte.has_value() ? 1 : 0;
  return byte;
}

}  // namespace nightshift
