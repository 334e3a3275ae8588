#include "kernels/base/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "kernels/base/printable_text.h"

namespace nightshift {
namespace {

char LevelLetter(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return 'I';
    case LogLevel::kWarning:
      return 'W';
    case LogLevel::kError:
      return 'E';
  }
  return '?';
}

}  // namespace

LogLine::~LogLine() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char time_text[32];
  std::strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%S", &utc);
  // One fprintf a line: stdio locks the stream, so lines of threads do not mix.
  std::fprintf(stderr, "%c %s.%03dZ %s\n", LevelLetter(level_), time_text,
               static_cast<int>(millis),
               PrintableText(stream_.str(), LineBreaks::kEscape).c_str());
}

}  // namespace nightshift
