#include "server/input/rpc_error.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/utf8.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/";
constexpr int64_t kMaxMessageBytes = 1024;
constexpr int64_t kMaxMetadataValueBytes = 256;

template <typename Detail>
std::string TypeUrl() {
  return absl::StrCat(kTypePrefix, Detail::descriptor()->full_name());
}

template <typename Detail>
void Attach(absl::Status& status, const Detail& detail) {
  status.SetPayload(TypeUrl<Detail>(), absl::Cord(detail.SerializeAsString()));
}

template <typename Detail>
std::optional<Detail> Find(const absl::Status& status) {
  const auto payload = status.GetPayload(TypeUrl<Detail>());
  Detail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return detail;
}

std::string ReasonOfCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kDataLoss:
      return reason::kRecordCorrupt;
    case absl::StatusCode::kInvalidArgument:
      return reason::kFieldInvalid;
    case absl::StatusCode::kFailedPrecondition:
      return reason::kStateConflict;
    case absl::StatusCode::kResourceExhausted:
      return reason::kBacklogFull;
    case absl::StatusCode::kUnavailable:
      return reason::kStoreBusy;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return reason::kInternal;
    default:
      return absl::StatusCodeToString(code);
  }
}

google::rpc::ErrorInfo MakeErrorInfo(absl::string_view reason_text) {
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason_text));
  info.set_domain(kErrorDomain);
  return info;
}

}  // namespace

std::string CleanText(absl::string_view text, int64_t max_bytes) {
  std::string clean;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    const size_t added = step.valid ? step.length : 1;
    if (static_cast<int64_t>(clean.size() + added) > max_bytes) {
      break;
    }
    if (step.valid) {
      clean.append(text.data() + offset, step.length);
    } else {
      clean.push_back('?');
    }
    offset += step.length;
  }
  return clean;
}

absl::Status MakeError(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                       const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info = MakeErrorInfo(reason);
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[key] = CleanText(value, kMaxMetadataValueBytes);
  }
  absl::Status status(code, CleanText(message, kMaxMessageBytes));
  Attach(status, info);
  return status;
}

absl::Status MakeFieldError(absl::string_view reason,
                            const std::vector<FieldViolation>& violations, int64_t total) {
  const int64_t given = static_cast<int64_t>(violations.size());
  const int64_t count = std::max(given, total);
  const int64_t told = std::min(given, kMaxFieldViolations);
  // All violations together stay below half of what a status may weigh.
  const int64_t text_bytes = kMaxRpcStatusBytes / 4 / std::max<int64_t>(told, 1);
  google::rpc::BadRequest bad_request;
  for (int64_t i = 0; i < told; ++i) {
    const FieldViolation& violation = violations[static_cast<size_t>(i)];
    auto* added = bad_request.add_field_violations();
    added->set_field(CleanText(violation.field, text_bytes));
    added->set_description(CleanText(violation.description, text_bytes));
  }
  std::string message = absl::StrCat(violations[0].field, ": ", violations[0].description);
  std::map<std::string, std::string> metadata = {{"field", violations[0].field}};
  if (count > 1) {
    absl::StrAppend(&message, " (", count, " violations)");
    metadata["violations"] = absl::StrCat(count);
  }
  absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, reason, message, metadata);
  Attach(status, bad_request);
  return status;
}

absl::Status WithRetryDelay(absl::Status status, int64_t delay_ms) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(delay_ms / 1000);
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay_ms % 1000) * 1'000'000);
  Attach(status, retry);
  return status;
}

bool HasRetryDelay(const absl::Status& status) {
  return Find<google::rpc::RetryInfo>(status).has_value();
}

absl::Status WithQuotaFailure(absl::Status status, absl::string_view subject,
                              absl::string_view description) {
  constexpr int64_t kMaxDescriptionBytes = 512;
  google::rpc::QuotaFailure failure;
  auto* violation = failure.add_violations();
  violation->set_subject(std::string(subject));
  violation->set_description(CleanText(description, kMaxDescriptionBytes));
  Attach(status, failure);
  return status;
}

absl::Status WithResource(absl::Status status, absl::string_view type, absl::string_view name) {
  google::rpc::ResourceInfo resource;
  resource.set_resource_type(std::string(type));
  resource.set_resource_name(std::string(name));
  Attach(status, resource);
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  const auto info = Find<google::rpc::ErrorInfo>(status);
  return info.has_value() ? info->reason() : ReasonOfCode(status.code());
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status wire;
  wire.set_code(static_cast<int32_t>(status.code()));
  wire.set_message(CleanText(status.message(), kMaxMessageBytes));
  const auto info = Find<google::rpc::ErrorInfo>(status);
  wire.add_details()->PackFrom(info.has_value() ? *info
                                                : MakeErrorInfo(ReasonOfCode(status.code())));
  const std::string info_url = TypeUrl<google::rpc::ErrorInfo>();
  status.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    if (type_url == info_url || !absl::StartsWith(type_url, kTypePrefix)) {
      return;
    }
    auto* detail = wire.add_details();
    detail->set_type_url(std::string(type_url));
    detail->set_value(std::string(payload));
  });
  while (wire.details_size() > 1 &&
         static_cast<int64_t>(wire.ByteSizeLong()) > kMaxRpcStatusBytes) {
    wire.mutable_details()->RemoveLast();
  }
  if (static_cast<int64_t>(wire.ByteSizeLong()) > kMaxRpcStatusBytes) {
    // Metadata beyond the cap: the reason is what programs need.
    wire.mutable_details(0)->PackFrom(MakeErrorInfo(ErrorReason(status)));
  }
  return wire;
}

}  // namespace nightshift
