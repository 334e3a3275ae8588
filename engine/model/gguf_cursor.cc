#include "engine/model/gguf_cursor.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are read as they lie");

constexpr int64_t kBufferBytes = 1 << 16;
// Of metadata and tensor table, so that a huge file cannot fill memory with its head.
constexpr int64_t kMaxHeadBytes = 512 << 20;

}  // namespace

GgufCursor::GgufCursor(const SourceFile& file) : file_(file) {}

void GgufCursor::Refuse(const std::string& problem) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": ", problem, " (before byte ", position_, ")"));
  }
}

void GgufCursor::Take(void* target, size_t bytes) {
  const int64_t size = static_cast<int64_t>(bytes);
  if (!ok()) {
    return;
  }
  if (size > kMaxHeadBytes - position_) {
    Refuse(absl::StrCat("more than ", kMaxHeadBytes, " bytes of metadata and tensor table"));
    return;
  }
  if (size > remaining()) {
    status_ = absl::DataLossError(
        absl::StrCat(file_.path(), " ends at byte ", file_.bytes(),
                                            ", in the middle of its head; is it cut off?"));
    return;
  }
  const int64_t buffer_end = buffer_begin_ + static_cast<int64_t>(buffer_.size());
  if (size > kBufferBytes) {
    status_ = file_.Read(position_, {static_cast<std::byte*>(target), bytes});
    position_ += size;
    return;
  }
  if (position_ + size > buffer_end) {
    buffer_.resize(static_cast<size_t>(std::min(kBufferBytes, remaining())));
    buffer_begin_ = position_;
    status_ = file_.Read(position_, buffer_);
  }
  std::memcpy(target, buffer_.data() + (position_ - buffer_begin_), bytes);
  position_ += size;
}

int64_t GgufCursor::Count(int64_t element_bytes, int64_t limit, const char* what) {
  const uint64_t count = Number<uint64_t>();
  const int64_t bound = std::min(limit, remaining() / element_bytes);
  if (ok() && count > static_cast<uint64_t>(bound)) {
    Refuse(absl::StrCat(count, " ", what, ", at most ", bound, " are possible",
                        bound < limit ? absl::StrCat(": the file ends at byte ", file_.bytes(),
                                                     "; is it cut off?")
                                      : ""));
  }
  return ok() ? static_cast<int64_t>(count) : 0;
}

std::string GgufCursor::Text(int64_t max_bytes) {
  std::string text(static_cast<size_t>(Count(1, max_bytes, "bytes of a string")), '\0');
  Take(text.data(), text.size());
  return ok() ? text : std::string();
}

}  // namespace nightshift
