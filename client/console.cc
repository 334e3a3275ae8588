#include "client/console.h"

#include <cerrno>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

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

// " (field: description; ...)" for fields that the message does not name already.
std::string FieldsText(const std::vector<FieldError>& fields, const std::string& message) {
  std::string text;
  size_t num_listed = 0;
  for (const FieldError& field : fields) {
    if (message.find(field.field) != std::string::npos) {
      continue;
    }
    if (++num_listed > kMaxListedFields) {
      continue;
    }
    absl::StrAppend(&text, text.empty() ? " (" : "; ", field.field, ": ", field.description);
  }
  if (num_listed > kMaxListedFields) {
    absl::StrAppend(&text, "; and ", num_listed - kMaxListedFields, " more");
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
  std::string text = absl::StrCat(message, FieldsText(details.fields, message), " [", code,
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
