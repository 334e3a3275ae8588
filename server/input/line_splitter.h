// Cutting an input file into rows without holding it: lines of JSONL, messages of a proto stream.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/input/file_window.h"

namespace nightshift {

// Where a row's bytes stand in the file.
struct RowPlace {
  int64_t offset = 0;
  int64_t length = 0;
  int64_t line = 0;  // 1-based; 0 in a proto stream
};

struct SplitRow {
  RowPlace place;
  // The row, valid until the next call; empty for a row longer than the limit.
  absl::string_view bytes;
  bool too_long = false;
};

// Gives the lines of a JSONL file that are not blank. A byte order mark of UTF-8 at the start is
// skipped, lines end with LF or CRLF, the last one may have no end.
// Memory: max_line_bytes and one read buffer. One thread.
class LineSplitter {
 public:
  LineSplitter(int fd, int64_t max_line_bytes) : window_(fd), max_line_bytes_(max_line_bytes) {}

  // False at the end of the file. Errors: INVALID_ARGUMENT (INPUT_MALFORMED) naming the encoding
  // when the file is UTF-16 or UTF-32; INTERNAL when reading fails.
  absl::StatusOr<bool> Next(SplitRow& row);

 private:
  absl::Status Start();
  absl::StatusOr<bool> ReadLine(SplitRow& row);

  FileWindow window_;
  const int64_t max_line_bytes_;
  int64_t lines_ = 0;
  int64_t pending_skip_ = 0;  // of the line given last
  bool started_ = false;
};

// Gives the messages of a stream in which each stands behind its length as a varint.
// Memory: max_message_bytes and one read buffer. One thread.
class MessageSplitter {
 public:
  MessageSplitter(int fd, int64_t max_message_bytes)
      : window_(fd), max_message_bytes_(max_message_bytes) {}

  // False at the end of the file. Errors: INVALID_ARGUMENT (INPUT_MALFORMED) with the offset of a
  // length that is broken, above the limit, or beyond the end of the file; INTERNAL.
  absl::StatusOr<bool> Next(SplitRow& row);

 private:
  FileWindow window_;
  const int64_t max_message_bytes_;
  int64_t pending_skip_ = 0;
};

}  // namespace nightshift
