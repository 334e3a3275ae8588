#include "kernels/base/exit_code.h"

namespace nightshift {

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
