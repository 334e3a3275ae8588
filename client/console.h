// Console: what a command says. Standard output carries data only; everything else goes to standard
// error, one line each.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

struct ConsoleOptions {
  bool json = false;   // data and errors as JSON lines
  bool quiet = false;  // errors only
  bool color = false;
  bool live = false;  // standard error is a terminal: a progress line may be redrawn
};

// One thread.
class Console {
 public:
  explicit Console(ConsoleOptions options) : options_(options) {}
  ~Console() { ClearLive(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Writes `text` as it is to standard output. RESOURCE_EXHAUSTED and others as the file system
  // says.
  absl::Status Print(absl::string_view text);
  // "nightshift: text" on standard error, unless quiet.
  void Note(absl::string_view text);
  // The error in one line: message, field, code and reason, next step. Also when quiet.
  void Error(const absl::Status& error, absl::string_view next_step);
  // Asks on the terminal; true for y or yes. FAILED_PRECONDITION, naming `instead`, when standard
  // input or standard error is no terminal: there is nobody to ask.
  absl::StatusOr<bool> Confirm(absl::string_view question, absl::string_view instead);
  // Replaces the progress line; nothing unless live and not quiet.
  void ShowLive(absl::string_view text);
  void ClearLive();

  const ConsoleOptions& options() const { return options_; }

 private:
  void WriteError(const std::string& line);

  const ConsoleOptions options_;
  bool live_shown_ = false;
};

// `text` on one line and without control characters: nothing from outside moves the cursor.
std::string OneLine(absl::string_view text);

// The error as Console::Error writes it, without colour.
std::string ErrorText(const absl::Status& error, absl::string_view next_step);
std::string ErrorJson(const absl::Status& error, absl::string_view next_step);

}  // namespace nightshift
