// GgufCursor: walks the head of a GGUF file, every step checked against what is left of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"

#include "engine/model/source_file.h"

namespace nightshift {

// Buffered. After the first problem every read returns zero or empty and status() tells the
// problem, so that a caller may check once a record. Single-threaded.
class GgufCursor {
 public:
  explicit GgufCursor(const SourceFile& file);

  // A little-endian number.
  template <typename T>
  T Number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    Take(&value, sizeof(value));
    return value;
  }
  // A length of 8 bytes and as many bytes, at most `max_bytes`.
  std::string Text(int64_t max_bytes);
  // A count of elements that follow and take at least `element_bytes` each: never more than fit in
  // the rest of the file, nor than `limit`.
  int64_t Count(int64_t element_bytes, int64_t limit, const char* what);

  // Keeps the first problem.
  void Refuse(const std::string& problem);
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  int64_t position() const { return position_; }
  int64_t remaining() const { return file_.bytes() - position_; }

 private:
  void Take(void* target, size_t bytes);

  const SourceFile& file_;
  int64_t position_ = 0;
  std::vector<std::byte> buffer_;  // bytes [buffer_begin_, buffer_begin_ + size) of the file
  int64_t buffer_begin_ = 0;
  absl::Status status_;
};

}  // namespace nightshift
