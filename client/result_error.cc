#include "client/result_error.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"

#include "client/rpc_error.h"

namespace nightshift {
namespace {

// The batch code of a request that was never tried; empty for one that was.
std::string CodeOfUntried(const std::string& reason, absl::StatusCode code) {
  if (reason == "JOB_CANCELLED" || (reason.empty() && code == absl::StatusCode::kCancelled)) {
    return "batch_cancelled";
  }
  if (reason == "JOB_EXPIRED" || (reason.empty() && code == absl::StatusCode::kDeadlineExceeded)) {
    return "batch_expired";
  }
  if (reason == "JOB_FAILED") {
    return "batch_failed";
  }
  return "";
}

bool IsCallersFault(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

ResultError ResultErrorOf(const google::rpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.code());
  const ErrorDetails details = DetailsOf(status);
  ResultError error;
  error.message = status.message();
  error.code = CodeOfUntried(details.reason, code);
  if (!error.code.empty()) {
    return error;
  }
  error.has_run = true;
  const bool refused = IsCallersFault(code);
  error.status_code = refused ? 400 : 500;
  error.type = refused ? "invalid_request_error" : "server_error";
  const auto named = details.metadata.find("code");
  if (named != details.metadata.end()) {
    error.code = named->second;
  } else {
    error.code = absl::AsciiStrToLower(details.reason.empty() ? absl::StatusCodeToString(code)
                                                              : details.reason);
  }
  if (const auto param = details.metadata.find("param"); param != details.metadata.end()) {
    error.param = param->second;
  }
  return error;
}

}  // namespace nightshift
