// Errors as callers see them: an absl::Status whose payloads are the details of a google.rpc.Status
// (ErrorInfo always; BadRequest, QuotaFailure and RetryInfo where they apply).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "google/rpc/status.pb.h"

namespace nightshift {

inline constexpr char kErrorDomain[] = "nightshift.v1";
// gRPC turns a status with about 8 KB of details into RESOURCE_EXHAUSTED: half of that is the cap.
inline constexpr int64_t kMaxRpcStatusBytes = 4096;
inline constexpr int64_t kMaxFieldViolations = 20;

// ErrorInfo reasons (UPPER_SNAKE, at most 63 characters).
namespace reason {
inline constexpr char kFieldInvalid[] = "FIELD_INVALID";
inline constexpr char kFieldOutOfRange[] = "FIELD_OUT_OF_RANGE";
inline constexpr char kInputMalformed[] = "INPUT_MALFORMED";
inline constexpr char kPromptTooLong[] = "PROMPT_TOO_LONG";
// What the caller says in place of a request: a document that it could not read.
inline constexpr char kCallersError[] = "CALLERS_ERROR";
inline constexpr char kChecksumMismatch[] = "CHECKSUM_MISMATCH";
inline constexpr char kUploadOffsetMismatch[] = "UPLOAD_OFFSET_MISMATCH";
inline constexpr char kUploadIncomplete[] = "UPLOAD_INCOMPLETE";
inline constexpr char kUploadNotFound[] = "UPLOAD_NOT_FOUND";
inline constexpr char kJobExists[] = "JOB_EXISTS";
inline constexpr char kRequestIdReused[] = "REQUEST_ID_REUSED";
inline constexpr char kRequestInProgress[] = "REQUEST_IN_PROGRESS";
inline constexpr char kModelNotFound[] = "MODEL_NOT_FOUND";
inline constexpr char kModelUnavailable[] = "MODEL_UNAVAILABLE";
inline constexpr char kJobNotFound[] = "JOB_NOT_FOUND";
inline constexpr char kBacklogFull[] = "BACKLOG_FULL";
inline constexpr char kQuotaExceeded[] = "QUOTA_EXCEEDED";
inline constexpr char kDiskFull[] = "DISK_FULL";
inline constexpr char kDiskReserve[] = "DISK_RESERVE";
inline constexpr char kStateConflict[] = "STATE_CONFLICT";
inline constexpr char kEtagMismatch[] = "ETAG_MISMATCH";
inline constexpr char kResultsExpired[] = "RESULTS_EXPIRED";
inline constexpr char kTargetExists[] = "TARGET_EXISTS";
inline constexpr char kNoSweep[] = "NO_SWEEP";
inline constexpr char kSeqAhead[] = "SEQ_AHEAD";
inline constexpr char kReaderStalled[] = "READER_STALLED";
inline constexpr char kServerDraining[] = "SERVER_DRAINING";
inline constexpr char kServerDrained[] = "SERVER_DRAINED";
inline constexpr char kStoreBusy[] = "STORE_BUSY";
inline constexpr char kRecordCorrupt[] = "RECORD_CORRUPT";
inline constexpr char kInternal[] = "INTERNAL";
// Who calls may not.
inline constexpr char kTokenRequired[] = "TOKEN_REQUIRED";
inline constexpr char kTokenUnknown[] = "TOKEN_UNKNOWN";
inline constexpr char kTokenExpired[] = "TOKEN_EXPIRED";
inline constexpr char kCertificateUnknown[] = "CERTIFICATE_UNKNOWN";
inline constexpr char kCertificateExpired[] = "CERTIFICATE_EXPIRED";
inline constexpr char kRoleTooLow[] = "ROLE_TOO_LOW";
// Rows that end without having run, or whose runs kept failing.
inline constexpr char kJobCancelled[] = "JOB_CANCELLED";
inline constexpr char kJobExpired[] = "JOB_EXPIRED";
inline constexpr char kJobFailed[] = "JOB_FAILED";
inline constexpr char kAttemptsExhausted[] = "ATTEMPTS_EXHAUSTED";
}  // namespace reason

// `text` as valid UTF-8 of at most max_bytes, cut at a character border; broken bytes become '?'.
std::string CleanText(absl::string_view text, int64_t max_bytes);

// Makes an error with ErrorInfo(reason, domain, metadata). `metadata` repeats every dynamic part of
// the message, for programs.
absl::Status MakeError(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                       const std::map<std::string, std::string>& metadata = {});

struct FieldViolation {
  std::string field;  // path: "spec.sampling.top_p"
  std::string description;
};
// Makes INVALID_ARGUMENT with ErrorInfo and BadRequest; the message is the first violation's
// "field: description". Beyond kMaxFieldViolations only their number is told: `total`, when the
// caller knows of more than `violations`. These are not empty.
absl::Status MakeFieldError(absl::string_view reason,
                            const std::vector<FieldViolation>& violations, int64_t total = 0);

// The same error with a RetryInfo: how long a caller should wait before it tries again.
absl::Status WithRetryDelay(absl::Status status, int64_t delay_ms);
bool HasRetryDelay(const absl::Status& status);

// Adds whose quota it is ("tenant:acme") and how it is exceeded (QuotaFailure).
absl::Status WithQuotaFailure(absl::Status status, absl::string_view subject,
                              absl::string_view description);

// Adds the resource that the error is about (ResourceInfo): "job", "jobs/nightly".
absl::Status WithResource(absl::Status status, absl::string_view type, absl::string_view name);

// The reason of the status' ErrorInfo; for a status without one, a reason by its code.
std::string ErrorReason(const absl::Status& status);

// The wire form: code, message and details, at most kMaxRpcStatusBytes serialised (the message is
// cut at a character border, then details are dropped from the last on; ErrorInfo stays). An
// ErrorInfo is added where there is none, and invalid UTF-8 in the message is replaced.
google::rpc::Status ToRpcStatus(const absl::Status& status);

}  // namespace nightshift
