#include "kernels/base/log_format.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

#include "kernels/base/printable_text.h"

namespace nightshift {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;

std::string TimeText(int64_t wall_us) {
  const std::time_t seconds = wall_us / kMicrosPerSecond;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  char millis[8];
  std::snprintf(millis, sizeof(millis), ".%03dZ",
                static_cast<int>(wall_us % kMicrosPerSecond / 1000));
  return std::string(text, length) + millis;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

bool IsKeyCharacter(char character) {
  return absl::ascii_isalnum(static_cast<unsigned char>(character)) || character == '_' ||
         character == '-';
}

// The length of "key=" at the beginning; 0: there is none.
size_t KeyLength(absl::string_view text) {
  size_t length = 0;
  while (length < text.size() && IsKeyCharacter(text[length])) {
    ++length;
  }
  return length > 0 && length < text.size() && text[length] == '=' ? length + 1 : 0;
}

// Where a value in quotes ends: at a quote behind which the line ends or another key begins, since
// what is quoted may have quotes of its own.
size_t EndOfQuoted(absl::string_view text) {
  for (size_t quote = text.find('"', 1); quote != text.npos; quote = text.find('"', quote + 1)) {
    const absl::string_view behind = text.substr(quote + 1);
    if (behind.empty() || (behind[0] == ' ' && KeyLength(behind.substr(1)) > 0)) {
      return quote;
    }
  }
  return text.npos;
}

nlohmann::ordered_json ValueOf(absl::string_view text) {
  int64_t integer = 0;
  double number = 0;
  if (absl::SimpleAtoi(text, &integer)) {
    return integer;
  }
  const bool is_number =
      !text.empty() && (absl::ascii_isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-');
  if (is_number && absl::SimpleAtod(text, &number)) {
    return number;
  }
  if (text == "true" || text == "false") {
    return text == "true";
  }
  return std::string(text);
}

// Adds the members of "key=value key="some words"". False: the text has another form.
bool AddMembers(absl::string_view text, nlohmann::ordered_json& object) {
  while (!text.empty()) {
    const size_t key_length = KeyLength(text);
    if (key_length == 0) {
      return false;
    }
    const std::string key(text.substr(0, key_length - 1));
    text.remove_prefix(key_length);
    if (!text.empty() && text[0] == '"') {
      const size_t end = EndOfQuoted(text);
      if (end == text.npos) {
        return false;
      }
      object[key] = std::string(text.substr(1, end - 1));
      text.remove_prefix(end + 1);
    } else {
      const size_t end = std::min(text.find(' '), text.size());
      object[key] = ValueOf(text.substr(0, end));
      text.remove_prefix(end);
    }
    if (!text.empty()) {
      text.remove_prefix(1);  // the space
    }
  }
  return true;
}

std::string JsonLine(const LoggedLine& line) {
  nlohmann::ordered_json object = {{"time", TimeText(line.wall_us)},
                                   {"level", LevelName(line.level)}};
  const absl::string_view text = line.text;
  const size_t space = std::min(text.find(' '), text.size());
  const absl::string_view event = text.substr(0, space);
  nlohmann::ordered_json members = object;
  members["event"] = std::string(event);
  const bool is_event = !event.empty() && std::all_of(event.begin(), event.end(), IsKeyCharacter);
  if (is_event && AddMembers(text.substr(std::min(space + 1, text.size())), members)) {
    object = std::move(members);
  } else {
    if (is_event) {
      object["event"] = std::string(event);
    }
    object["message"] = std::string(text);
  }
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string TextLine(const LoggedLine& line) {
  const char letter = absl::ascii_toupper(static_cast<unsigned char>(LevelName(line.level)[0]));
  return std::string(1, letter) + " " + TimeText(line.wall_us) + " " +
         PrintableText(line.text, LineBreaks::kEscape);
}

}  // namespace

std::string FormatLine(const LoggedLine& line, LogFormat format) {
  return format == LogFormat::kJson ? JsonLine(line) : TextLine(line);
}

std::optional<int64_t> LogLimiter::Admit(absl::string_view event, int64_t now_us) {
  constexpr double kMost = 200;
  constexpr double kPerMicro = 20.0 / kMicrosPerSecond;
  constexpr size_t kMaxEvents = 1000;  // those of a process are few; a wrong line is no event
  auto found = buckets_.find(event);
  if (found == buckets_.end()) {
    if (buckets_.size() >= kMaxEvents) {
      buckets_.clear();
    }
    found = buckets_.emplace(std::string(event), Bucket{.lines = kMost, .filled_us = now_us}).first;
  }
  Bucket& bucket = found->second;
  bucket.lines =
      std::min(kMost, bucket.lines + kPerMicro * static_cast<double>(now_us - bucket.filled_us));
  bucket.filled_us = now_us;
  if (bucket.lines < 1) {
    ++bucket.left_out;
    return std::nullopt;
  }
  bucket.lines -= 1;
  return std::exchange(bucket.left_out, 0);
}

}  // namespace nightshift
