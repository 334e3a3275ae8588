// ParseRow: the bytes of one input row as an InferenceRequest, or why it can never run.
//
// A JSONL row is either a line of OpenAI's batch format, {"custom_id", "method", "url", "body"} for
// /v1/chat/completions or /v1/completions, or plain: {"id"?, "prompt" | "messages", "max_tokens"? |
// "choices"?, ...} with the same option names as the bodies. A proto row is one serialised
// InferenceRequest. A plain row {"id"?, "error": {"code", "message"}} is no request: the caller could
// not make one, and these words become the row's result, beside those of the others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/input/parse_limits.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

struct ParsedRow {
  // custom_id and form are filled as far as they could be read even when status is not OK.
  v1::InferenceRequest request;
  // OK or INVALID_ARGUMENT (row_error.h), never quoting the row's text.
  absl::Status status;
  // The model that the row's body names; empty for none.
  std::string model;
  // What the row calls its custom_id: that, or "id".
  const char* id_field = "custom_id";
  // Fields that nobody reads.
  int64_t ignored_fields = 0;
};

// Pure: the same bytes give the same answer. `input_format` is a v1::InputFormat; `bytes` a line
// without its newline (a carriage return at its end is fine), or one message.
// Memory: bounded by limits.max_json_values and the row itself.
ParsedRow ParseRow(int32_t input_format, absl::string_view bytes, const ParseLimits& limits);

}  // namespace nightshift
