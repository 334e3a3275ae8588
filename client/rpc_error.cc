#include "client/rpc_error.h"

#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

constexpr char kStatusUrl[] = "type.googleapis.com/google.rpc.Status";

void Attach(const google::rpc::Status& details, absl::Status& status) {
  status.SetPayload(kStatusUrl, absl::Cord(details.SerializeAsString()));
}

// gRPC's own words for what a user may need to act on; the server's words stay as they are.
std::string MessageOf(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return "no answer in time";
  }
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return "the daemon ended the call";
  }
  if (status.error_message().empty()) {
    return "the server gave no message";
  }
  return status.error_message();
}

}  // namespace

absl::Status FromRpcStatus(absl::string_view attempted, const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  // We do not ask about calls that we cancelled ourselves: this is a daemon that shuts down.
  const auto code = status.error_code() == grpc::StatusCode::CANCELLED
                        ? absl::StatusCode::kUnavailable
                        : static_cast<absl::StatusCode>(status.error_code());
  absl::Status error(code, absl::StrCat(attempted, ": ", MessageOf(status)));
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) {
    Attach(details, error);
  }
  return error;
}

ErrorDetails DetailsOf(const google::rpc::Status& status) {
  ErrorDetails details;
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      details.reason = info.reason();
      details.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        details.fields.push_back({violation.field(), violation.description()});
      }
    } else if (any.UnpackTo(&retry)) {
      details.retry_delay = absl::Seconds(retry.retry_delay().seconds()) +
                            absl::Nanoseconds(retry.retry_delay().nanos());
    }
  }
  return details;
}

ErrorDetails DetailsOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kStatusUrl);
  google::rpc::Status details;
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) {
    return {};
  }
  return DetailsOf(details);
}

absl::Status MakeClientError(absl::StatusCode code, absl::string_view reason,
                             absl::string_view message) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain("nightshift.client");
  google::rpc::Status details;
  details.set_code(static_cast<int32_t>(code));
  details.add_details()->PackFrom(info);
  absl::Status status(code, message);
  Attach(details, status);
  return status;
}

bool IsTransient(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return DetailsOf(status).reason != "SERVER_DRAINED";
    case absl::StatusCode::kAborted: {
      const std::string reason = DetailsOf(status).reason;
      return reason == "REQUEST_IN_PROGRESS" || reason == "UPLOAD_INCOMPLETE" ||
             reason == "READER_STALLED";
    }
    case absl::StatusCode::kInternal:
      // How gRPC reports a connection that ended in the middle of a message.
      return absl::StrContains(status.message(), "RST_STREAM");
    default:
      return false;
  }
}

}  // namespace nightshift
