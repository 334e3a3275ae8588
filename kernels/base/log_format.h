// How log lines look, how many are written, and the last ones that told of trouble.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "kernels/base/log.h"

namespace nightshift {

enum class LogFormat {
  kText,  // "W 2026-01-31T23:59:59.123Z event key=value key="some words""
  kJson,  // {"time":"...","level":"warning","event":"event","key":"value"}
};

struct LoggedLine {
  int64_t wall_us = 0;
  LogLevel level = LogLevel::kInfo;
  std::string text;  // as it was given to LOG
};

// Of all lines of the process from here on; kText until then. Children that are started later write
// as their parent does, if they call InheritLogFormat.
void SetLogFormat(LogFormat format);
// What the parent has set.
void InheritLogFormat();

// The last warnings and errors of the process, at most 20, the newest last. Thread-safe.
std::vector<LoggedLine> RecentProblems();

// One line without its end. In JSON the first word is the event, and what follows in the form
// key=value its members: numbers as numbers, "true" and "false" as such, all else as strings. A
// line of another form is one member, "message".
std::string FormatLine(const LoggedLine& line, LogFormat format);

// The same event again and again is not worth a full disk: decides which lines are written. Not
// thread-safe.
class LogLimiter {
 public:
  // Whether a line of this event at this time of the monotonic clock is written: the first 200,
  // then 20 a second. With how many lines of the event were left out before it.
  std::optional<int64_t> Admit(absl::string_view event, int64_t now_us);

 private:
  struct Bucket {
    double lines = 0;  // that may still be written
    int64_t filled_us = 0;
    int64_t left_out = 0;
  };
  std::map<std::string, Bucket, std::less<>> buckets_;
};

}  // namespace nightshift
