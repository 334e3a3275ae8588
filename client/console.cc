#include "client/console.h"

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "client/rpc_error.h"
#include "kernels/base/file_descriptor.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// Fields beyond this many are counted, not listed.
constexpr size_t kMaxListedFields = 3;

size_t TerminalColumns() {
  struct winsize size = {};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// Whether a message has "FIELD:" as a word: "line 1" is not named by "line 12: ...".
bool Names(absl::string_view message, absl::string_view field) {
  const std::string word = absl::StrCat(field, ":");
  const size_t found = message.find(word);
  return found != absl::string_view::npos && (found == 0 || message[found - 1] == ' ');
}

// " (field: description; ...)" for fields that the message does not name already. The server may
// know of more than it lists.
std::string FieldsText(const ErrorDetails& details, const std::string& message) {
  int64_t total = static_cast<int64_t>(details.fields.size());
  if (const auto told = details.metadata.find("violations"); told != details.metadata.end()) {
    (void)absl::SimpleAtoi(told->second, &total);
  }
  std::string text;
  size_t num_listed = 0;
  for (const FieldError& field : details.fields) {
    if (Names(message, field.field)) {
      --total;
    } else if (num_listed < kMaxListedFields) {
      ++num_listed;
      --total;
      absl::StrAppend(&text, text.empty() ? " (" : "; ", field.field, ": ", field.description);
    }
  }
  if (!text.empty() && total > 0) {
    absl::StrAppend(&text, "; and ", total, " more");
  }
  return text.empty() ? text : text + ")";
}

}  // namespace

std::string OneLine(absl::string_view text) {
  std::string line;
  for (const char byte : text) {
    const auto value = static_cast<unsigned char>(byte);
    line.push_back(value < 0x20 || value == 0x7f ? ' ' : byte);
  }
  return line;
}

std::string ErrorText(const absl::Status& error, absl::string_view next_step) {
  const ErrorDetails details = DetailsOf(error);
  const std::string message(error.message());
  const std::string code = absl::StatusCodeToString(error.code());
  const bool says_more = !details.reason.empty() && details.reason != code;
  std::string text = absl::StrCat(message, FieldsText(details, message), " [", code,
                                  says_more ? " " : "", says_more ? details.reason : "", "]");
  if (!next_step.empty()) {
    absl::StrAppend(&text, "; ", next_step);
  }
  return OneLine(text);
}

std::string ErrorJson(const absl::Status& error, absl::string_view next_step) {
  const ErrorDetails details = DetailsOf(error);
  Json fields = Json::array();
  for (const FieldError& field : details.fields) {
    fields.push_back({{"field", field.field}, {"description", field.description}});
  }
  Json body = Json::object();
  body["code"] = absl::StatusCodeToString(error.code());
  body["reason"] = details.reason;
  body["message"] = std::string(error.message());
  body["fields"] = fields;
  body["next_step"] = std::string(next_step);
  Json line = Json::object();
  line["error"] = body;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status Console::Print(absl::string_view text) {
  ClearLive();
  return WriteAll(STDOUT_FILENO, text, "standard output");
}

void Console::Note(absl::string_view text) {
  if (!options_.quiet) {
    WriteError(absl::StrCat("nightshift: ", OneLine(text)));
  }
}

void Console::Error(const absl::Status& error, absl::string_view next_step) {
  if (options_.json) {
    WriteError(ErrorJson(error, next_step));
    return;
  }
  const char* start = options_.color ? "\x1b[31m" : "";
  const char* end = options_.color ? "\x1b[0m" : "";
  WriteError(absl::StrCat("nightshift: ", start, "error:", end, " ", ErrorText(error, next_step)));
}

absl::StatusOr<bool> Console::Confirm(absl::string_view question, absl::string_view instead) {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(question, " nobody is at a terminal to be asked: give ", instead));
  }
  ClearLive();
  (void)WriteAll(STDERR_FILENO, absl::StrCat("nightshift: ", OneLine(question), " [y/N] "),
                 "standard error");
  std::string answer;
  std::getline(std::cin, answer);
  absl::AsciiStrToLower(&answer);
  return answer == "y" || answer == "yes";
}

void Console::ShowLive(absl::string_view text) {
  if (!options_.live || options_.quiet) {
    return;
  }
  // A line that wraps could not be redrawn.
  const std::string line = OneLine(text).substr(0, TerminalColumns() - 1);
  (void)WriteAll(STDERR_FILENO, absl::StrCat("\r", line, "\x1b[K"), "standard error");
  live_shown_ = true;
}

void Console::ClearLive() {
  if (live_shown_) {
    (void)WriteAll(STDERR_FILENO, "\r\x1b[K", "standard error");
    live_shown_ = false;
  }
}

void Console::WriteError(const std::string& line) {
  ClearLive();
  (void)WriteAll(STDERR_FILENO, line + "\n", "standard error");
}

}  // namespace nightshift
