// LOG(INFO) << "event key=" << value: one line an event on stderr, units in the keys.
// Never log prompts, outputs or parser messages that quote input.
#pragma once

#include <sstream>
#include <string>

namespace nightshift {

enum class LogLevel { kInfo, kWarning, kError };

// Collects one line and writes it with time and level when destroyed. Thread-safe.
class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine();
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  std::ostringstream& stream() { return stream_; }

 private:
  LogLevel level_;
  std::ostringstream stream_;
};

}  // namespace nightshift

#define NIGHTSHIFT_LOG_INFO ::nightshift::LogLevel::kInfo
#define NIGHTSHIFT_LOG_WARNING ::nightshift::LogLevel::kWarning
#define NIGHTSHIFT_LOG_ERROR ::nightshift::LogLevel::kError
#define LOG(level) ::nightshift::LogLine(NIGHTSHIFT_LOG_##level).stream()
