#include "server/input/line_splitter.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/row_error.h"

namespace nightshift {
namespace {

// The encoding that the first bytes betray, or nullptr. JSONL starts with an ASCII character, so a
// zero byte among the first two tells UTF-16 without a mark.
const char* OtherEncoding(absl::string_view start) {
  if (absl::StartsWith(start, absl::string_view("\xFF\xFE\0\0", 4)) ||
      absl::StartsWith(start, absl::string_view("\0\0\xFE\xFF", 4))) {
    return "UTF-32";
  }
  if (absl::StartsWith(start, "\xFF\xFE")) {
    return "UTF-16 (little endian)";
  }
  if (absl::StartsWith(start, "\xFE\xFF")) {
    return "UTF-16 (big endian)";
  }
  if (start.size() >= 2 && start[0] != '\0' && start[1] == '\0') {
    return "UTF-16 (little endian)";
  }
  if (start.size() >= 2 && start[0] == '\0' && start[1] != '\0') {
    return "UTF-16 (big endian)";
  }
  return nullptr;
}

bool IsBlank(absl::string_view line) {
  return line.find_first_not_of(" \t\r") == absl::string_view::npos;
}

absl::Status BrokenStream(int64_t offset, absl::string_view problem) {
  return RowError(reason::kInputMalformed, row_code::kInvalidValue, "",
                  absl::StrCat("message at offset ", offset, " of the input ", problem));
}

}  // namespace

absl::Status LineSplitter::Start() {
  started_ = true;
  ASSIGN_OR_RETURN(const absl::string_view start, window_.Peek(4));
  if (const char* encoding = OtherEncoding(start); encoding != nullptr) {
    return RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                    absl::StrCat("line 1: input is encoded as ", encoding,
                                 ", must be UTF-8; convert it first"));
  }
  if (absl::StartsWith(start, "\xEF\xBB\xBF")) {
    window_.Skip(3);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LineSplitter::Next(SplitRow& row) {
  if (!started_) {
    RETURN_IF_ERROR(Start());
  }
  while (true) {
    ASSIGN_OR_RETURN(const bool found, ReadLine(row));
    if (!found) {
      return false;
    }
    if (row.too_long || !IsBlank(row.bytes)) {
      return true;
    }
  }
}

absl::StatusOr<bool> LineSplitter::ReadLine(SplitRow& row) {
  window_.Skip(pending_skip_);
  pending_skip_ = 0;
  const int64_t begin = window_.position();
  int64_t dropped = 0;  // of a line that is too long, behind the window
  int64_t searched = 0;
  while (true) {
    ASSIGN_OR_RETURN(const absl::string_view held, window_.Peek(searched + 1));
    const int64_t size = static_cast<int64_t>(held.size());
    const size_t newline = held.find('\n', static_cast<size_t>(searched));
    const bool ends = newline != absl::string_view::npos;
    if (!ends && size > searched) {
      searched = size;
      if (dropped + size > max_line_bytes_ + 1) {
        window_.Skip(size);
        dropped += size;
        searched = 0;
      }
      continue;
    }
    const int64_t tail = ends ? static_cast<int64_t>(newline) : size;
    if (!ends && dropped + tail == 0) {
      return false;
    }
    pending_skip_ = tail + (ends ? 1 : 0);
    absl::string_view bytes = held.substr(0, static_cast<size_t>(tail));
    if (dropped == 0 && absl::EndsWith(bytes, "\r")) {
      bytes.remove_suffix(1);
    }
    row.too_long = dropped > 0 || static_cast<int64_t>(bytes.size()) > max_line_bytes_;
    row.bytes = row.too_long ? absl::string_view() : bytes;
    row.place = {.offset = begin,
                 .length = dropped > 0 ? dropped + tail : static_cast<int64_t>(bytes.size()),
                 .line = ++lines_};
    return true;
  }
}

absl::StatusOr<bool> MessageSplitter::Next(SplitRow& row) {
  window_.Skip(pending_skip_);
  pending_skip_ = 0;
  constexpr int64_t kMaxVarintBytes = 10;
  const int64_t begin = window_.position();
  ASSIGN_OR_RETURN(absl::string_view held, window_.Peek(kMaxVarintBytes));
  if (held.empty()) {
    return false;
  }
  uint64_t length = 0;
  int64_t header = 0;
  while (true) {
    if (header == std::min<int64_t>(kMaxVarintBytes, static_cast<int64_t>(held.size()))) {
      return BrokenStream(begin, "has a broken length");
    }
    const auto byte = static_cast<unsigned char>(held[static_cast<size_t>(header)]);
    length |= static_cast<uint64_t>(byte & 0x7FU) << (7 * header);
    ++header;
    if ((byte & 0x80U) == 0) {
      break;
    }
  }
  if (length > static_cast<uint64_t>(max_message_bytes_)) {
    return BrokenStream(begin,
                        absl::StrCat("claims ", length, " bytes, at most ", max_message_bytes_));
  }
  const auto wanted = static_cast<int64_t>(length);
  window_.Skip(header);
  ASSIGN_OR_RETURN(held, window_.Peek(wanted));
  if (static_cast<int64_t>(held.size()) < wanted) {
    return BrokenStream(
        begin, absl::StrCat("claims ", length, " bytes, the input ends after ", held.size()));
  }
  row.bytes = held.substr(0, static_cast<size_t>(length));
  row.too_long = false;
  row.place = {.offset = begin + header, .length = wanted, .line = 0};
  pending_skip_ = wanted;
  return true;
}

}  // namespace nightshift
