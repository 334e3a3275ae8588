#include "kernels/base/exit_code.h"

#include "absl/strings/str_cat.h"

namespace nightshift {

std::string ExitCodesText() {
  constexpr size_t kColumns = 96;
  std::string text;
  std::string line = "Exit codes:";
  for (const ExitCodeMeaning& each : kExitCodes) {
    const bool is_last = each.code == ExitCode::kInterrupted;
    const std::string item =
        absl::StrCat(" ", static_cast<int>(each.code), " ", each.meaning, is_last ? "." : ",");
    if (line.size() + item.size() > kColumns) {
      absl::StrAppend(&text, line, "\n");
      line.assign(1, ' ');
    }
    line += item;
  }
  return text + line;
}

ExitCode ExitCodeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kAuth;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnavailable;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kInputInvalid;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kQuotaOrDisk;
    case absl::StatusCode::kCancelled:
      return ExitCode::kInterrupted;
    default:
      return ExitCode::kOther;
  }
}

}  // namespace nightshift
