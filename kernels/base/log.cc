#include "kernels/base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "kernels/base/clock.h"
#include "kernels/base/log_format.h"
#include "kernels/base/mutex.h"

namespace nightshift {
namespace {

constexpr char kFormatVariable[] = "NIGHTSHIFT_LOG_FORMAT";

// The process's log: where all lines meet.
class Log {
 public:
  // Never destroyed: threads may log while the process ends.
  static Log& Instance() {
    static Log& log = *std::make_unique<Log>().release();
    return log;
  }

  void SetFormat(LogFormat format) { format_.store(format); }

  void Write(LogLevel level, const std::string& text) {
    LoggedLine line = {.wall_us = clock_.WallMicros(), .level = level, .text = text};
    const absl::string_view words = text;
    const std::string event(words.substr(0, words.find(' ')));
    MutexLock lock(mutex_);
    const std::optional<int64_t> left_out = limiter_.Admit(event, clock_.MonotonicMicros());
    if (!left_out.has_value()) {
      return;
    }
    if (*left_out > 0) {
      line.text += " left_out=" + std::to_string(*left_out);
    }
    std::fprintf(stderr, "%s\n", FormatLine(line, format_.load()).c_str());
    if (level != LogLevel::kInfo) {
      Keep(std::move(line));
    }
  }

  std::vector<LoggedLine> Problems() {
    MutexLock lock(mutex_);
    return {problems_.begin(), problems_.end()};
  }

 private:
  void Keep(LoggedLine line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    constexpr size_t kKept = 20;
    problems_.push_back(std::move(line));
    if (problems_.size() > kKept) {
      problems_.pop_front();
    }
  }

  RealClock clock_;
  std::atomic<LogFormat> format_{LogFormat::kText};
  Mutex mutex_;
  LogLimiter limiter_ ABSL_GUARDED_BY(mutex_);
  std::deque<LoggedLine> problems_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

LogLine::~LogLine() {
  Log::Instance().Write(level_, stream_.str());
}

void SetLogFormat(LogFormat format) {
  Log::Instance().SetFormat(format);
  ::setenv(kFormatVariable, format == LogFormat::kJson ? "json" : "text", 1);
}

void InheritLogFormat() {
  const char* const format = std::getenv(kFormatVariable);
  if (format != nullptr && std::string(format) == "json") {
    Log::Instance().SetFormat(LogFormat::kJson);
  }
}

std::vector<LoggedLine> RecentProblems() {
  return Log::Instance().Problems();
}

}  // namespace nightshift
