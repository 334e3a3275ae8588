#include "client/option_checks.h"

#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "client/job_text.h"

namespace nightshift {
namespace {

// `complaint` says what is wrong with a value; empty: nothing.
CLI::Validator Check(std::function<std::string(const std::string&)> complaint) {
  return CLI::Validator([complaint](std::string& text) { return complaint(text); }, "");
}

// The check that complains "'TEXT' is EXPECTED" about values that are not fine.
CLI::Validator Expect(std::function<bool(const std::string&)> is_fine, std::string complaint) {
  return Check([is_fine, complaint](const std::string& text) {
    return is_fine(text) ? std::string() : absl::StrCat("'", text, "' is ", complaint);
  });
}

bool IsNumberWithin(const std::string& text, double low, double high) {
  double value = 0;
  return absl::SimpleAtod(text, &value) && value >= low && value <= high;
}

}  // namespace

int EnumeratorOf(const NamesOf& names, const std::string& text) {
  for (const auto& [name, enumerator] : names) {
    if (name == text) {
      return enumerator;
    }
  }
  return 0;
}

std::optional<absl::Duration> ParseDurationText(const std::string& text) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    return seconds >= 0 ? std::optional(absl::Seconds(seconds)) : std::nullopt;
  }
  absl::Duration duration;
  const bool is_duration = absl::ParseDuration(text, &duration);
  return is_duration && duration >= absl::ZeroDuration() ? std::optional(duration) : std::nullopt;
}

std::optional<absl::Time> ParseStartTime(const std::string& text) {
  absl::Time time;
  std::string unused;
  const bool is_time = absl::ParseTime(absl::RFC3339_full, text, &time, &unused);
  return is_time && time >= absl::UnixEpoch() ? std::optional(time) : std::nullopt;
}

std::optional<std::pair<int32_t, double>> ParseLogitBias(const std::string& text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  int32_t token = 0;
  double bias = 0;
  const bool is_bias = absl::SimpleAtoi(parts.first, &token) && token >= 0 &&
                       absl::SimpleAtod(parts.second, &bias) && bias >= -100 && bias <= 100;
  return is_bias ? std::optional(std::pair(token, bias)) : std::nullopt;
}

CLI::Validator IsOneOf(const NamesOf& names) {
  std::string known;
  for (const auto& [name, enumerator] : names) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  return Expect([&names](const std::string& text) { return EnumeratorOf(names, text) != 0; },
                absl::StrCat("none of ", known));
}

CLI::Validator IsBetween(double low, double high) {
  return Expect([low, high](const std::string& text) { return IsNumberWithin(text, low, high); },
                absl::StrFormat("no number from %.17g to %.17g", low, high));
}

CLI::Validator IsShare() {
  return Expect(
      [](const std::string& text) {
        return IsNumberWithin(text, 0, 1) && !IsNumberWithin(text, 0, 0);
      },
      "no number above 0, at most 1");
}

CLI::Validator IsLogitBias() {
  return Expect([](const std::string& text) { return ParseLogitBias(text).has_value(); },
                "not TOKEN=BIAS, an id and a number from -100 to 100");
}

CLI::Validator IsNamed() {
  return Expect([](const std::string& text) { return !text.empty(); },
                "no name; is a variable of the script empty?");
}

CLI::Validator IsDuration() {
  return Expect([](const std::string& text) { return ParseDurationText(text).has_value(); },
                "no duration such as 90s, 10m, 1h30m");
}

CLI::Validator IsStartTime() {
  return Expect(
      [](const std::string& text) { return ParseStartTime(text).has_value(); },
      "no time such as 2025-06-01T22:00:00+02:00");
}

CLI::Validator IsLabel() {
  return Expect(
      [](const std::string& text) {
        return text.find('=') != std::string::npos && text.find('=') > 0;
      },
      "not KEY=VALUE");
}

CLI::Validator IsJobState() {
  return Expect(
      [](const std::string& text) { return ParseState(text) != v1::JOB_STATE_UNSPECIFIED; },
      "no state of a job, such as queued, running, failed");
}

}  // namespace nightshift
