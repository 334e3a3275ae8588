// Checks of option values, whose complaints say what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/time/time.h"

namespace nightshift {

// What people write, and the enumerator that it means (never 0, which is UNSPECIFIED).
using NamesOf = std::vector<std::pair<std::string, int>>;

// The enumerator of a name; 0 for none.
int EnumeratorOf(const NamesOf& names, const std::string& text);

// "90s", "10m", "1h30m" or seconds as a plain number; nothing for other text or below zero.
std::optional<absl::Duration> ParseDurationText(const std::string& text);

// An RFC 3339 time; nothing for other text.
std::optional<absl::Time> ParseStartTime(const std::string& text);

// "50256=-100" as id and bias; nothing for other text.
std::optional<std::pair<int32_t, double>> ParseLogitBias(const std::string& text);

// `names` must outlive the validator.
CLI::Validator IsOneOf(const NamesOf& names);
// A number from low to high, both included.
CLI::Validator IsBetween(double low, double high);
// A number above 0, at most 1.
CLI::Validator IsShare();
// TOKEN=BIAS: a token id and a number from -100 to 100.
CLI::Validator IsLogitBias();
// Not empty, as what a script writes from a variable that is not set.
CLI::Validator IsNamed();
CLI::Validator IsDuration();
CLI::Validator IsStartTime();
CLI::Validator IsLabel();
CLI::Validator IsJobState();

}  // namespace nightshift
