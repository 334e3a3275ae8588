// Errors of one input row: INVALID_ARGUMENT with ErrorInfo metadata "param" (the field, as the row
// spells it) and "code" (as OpenAI's batch files name it), from which clients write error lines.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "server/input/rpc_error.h"

namespace nightshift {

namespace row_code {
inline constexpr char kInvalidJsonLine[] = "invalid_json_line";
inline constexpr char kDuplicateCustomId[] = "duplicate_custom_id";
inline constexpr char kInvalidCustomId[] = "invalid_custom_id";
inline constexpr char kUrlMismatch[] = "url_mismatch";
inline constexpr char kModelMismatch[] = "model_mismatch";
inline constexpr char kInvalidValue[] = "invalid_value";
inline constexpr char kInvalidType[] = "invalid_type";
inline constexpr char kMissingField[] = "missing_required_parameter";
inline constexpr char kUnsupported[] = "unsupported_parameter";
inline constexpr char kTooLong[] = "context_length_exceeded";
inline constexpr char kTemplate[] = "chat_template_error";
}  // namespace row_code

// The message becomes "param: message", or the message alone for an empty param.
inline absl::Status RowError(absl::string_view reason, absl::string_view code,
                             absl::string_view param, absl::string_view message) {
  if (param.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason, message,
                     {{"code", std::string(code)}});
  }
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrCat(param, ": ", message),
                   {{"code", std::string(code)}, {"param", std::string(param)}});
}

inline absl::Status WrongType(absl::string_view param, absl::string_view expected,
                              absl::string_view found) {
  return RowError(reason::kFieldInvalid, row_code::kInvalidType, param,
                  absl::StrCat("must be ", expected, ", is ", found));
}

}  // namespace nightshift
