#include "server/input/request_parser.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/json_fields.h"
#include "server/input/json_line.h"
#include "server/input/member_text.h"
#include "server/input/prompt_fields.h"
#include "server/input/refused_fields.h"
#include "server/input/request_check.h"
#include "server/input/row_error.h"
#include "server/input/sampling_fields.h"

namespace nightshift {
namespace {

using nlohmann::json;

absl::Status CheckCustomId(const std::string& id, absl::string_view param,
                           const ParseLimits& limits) {
  if (id.empty() || static_cast<int64_t>(id.size()) > limits.max_custom_id_bytes) {
    return RowError(
        reason::kFieldInvalid, row_code::kInvalidCustomId, param,
        absl::StrCat("has ", id.size(), " bytes, must have 1 to ", limits.max_custom_id_bytes));
  }
  return absl::OkStatus();
}

// OpenAI's form: required, a string.
absl::Status ReadCustomId(const json& row, const ParseLimits& limits, std::string& id) {
  const json* field = FindField(row, "custom_id");
  if (field == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidCustomId, "custom_id", "is missing");
  }
  if (!field->is_string()) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidCustomId, "custom_id",
                    absl::StrCat("must be a string, is ", field->type_name()));
  }
  RETURN_IF_ERROR(CheckCustomId(field->get_ref<const std::string&>(), "custom_id", limits));
  id = field->get_ref<const std::string&>();
  return absl::OkStatus();
}

// The plain form: optional, a string or a whole number, as "id" or "custom_id".
absl::Status ReadPlainId(const json& line, const ParseLimits& limits, ParsedRow& row) {
  std::string& id = *row.request.mutable_custom_id();
  const json* plain = FindField(line, "id");
  const json* custom = FindField(line, "custom_id");
  if (plain != nullptr && custom != nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidCustomId, "custom_id",
                    "given beside id, which means the same");
  }
  const json* field = plain != nullptr ? plain : custom;
  row.id_field = plain != nullptr ? "id" : "custom_id";
  if (field == nullptr) {
    return absl::OkStatus();
  }
  if (field->is_number_unsigned()) {
    id = absl::StrCat(field->get<uint64_t>());
    return absl::OkStatus();
  }
  if (field->is_number_integer()) {
    id = absl::StrCat(field->get<int64_t>());
    return absl::OkStatus();
  }
  if (!field->is_string()) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidCustomId, row.id_field,
                    absl::StrCat("must be a string or a whole number, is ", field->type_name()));
  }
  RETURN_IF_ERROR(CheckCustomId(field->get_ref<const std::string&>(), row.id_field, limits));
  id = field->get_ref<const std::string&>();
  return absl::OkStatus();
}

absl::Status ReadInput(const json& body, RowKind kind, ParsedRow& row) {
  const json* prompt = FindField(body, "prompt");
  const json* messages = FindField(body, "messages");
  if (kind == RowKind::kPlain && prompt != nullptr && messages != nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "messages",
                    "given beside prompt; a row has one of them");
  }
  if (kind != RowKind::kChat && prompt != nullptr) {
    return ReadPrompt(*prompt, row.request);
  }
  if (kind != RowKind::kCompletion && messages != nullptr) {
    return ReadMessages(*messages, *row.request.mutable_chat(), row.ignored_fields);
  }
  return RowError(reason::kFieldInvalid, row_code::kMissingField,
                  kind == RowKind::kChat ? "messages" : "prompt",
                  kind == RowKind::kPlain ? "row has neither prompt nor messages" : "is missing");
}

// `line` is the text of the row, in which the body is the line itself or, if `is_nested`, its
// member "body".
absl::Status ReadMetadata(const json& body, absl::string_view line, bool is_nested,
                          v1::InferenceRequest& request) {
  constexpr char kMetadata[] = "metadata";
  const json* metadata = FindField(body, kMetadata);
  if (metadata == nullptr) {
    return absl::OkStatus();
  }
  if (!metadata->is_object()) {
    return WrongType(kMetadata, "an object", metadata->type_name());
  }
  request.set_metadata(is_nested ? MemberText(line, {"body", kMetadata})
                                 : MemberText(line, {kMetadata}));
  return absl::OkStatus();
}

// What the caller says in place of a request: {"code", "message"}. That is the row's error.
absl::Status CallersError(const json& error) {
  constexpr int64_t kMaxCodeBytes = 64;
  constexpr int64_t kMaxMessageBytes = 2048;
  if (!error.is_object()) {
    return WrongType("error", "an object", error.type_name());
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> code, ReadText(error, "code"));
  ASSIGN_OR_RETURN(const std::optional<std::string> message, ReadText(error, "message"));
  if (!code || !message) {
    return RowError(reason::kFieldInvalid, row_code::kMissingField, "error",
                    "must have a code and a message");
  }
  return RowError(reason::kCallersError, CleanText(*code, kMaxCodeBytes), "",
                  CleanText(*message, kMaxMessageBytes));
}

// `line` is the text of the row.
absl::Status ReadBody(const json& body, absl::string_view line, RowKind kind,
                      const ParseLimits& limits, ParsedRow& row) {
  RETURN_IF_ERROR(CheckOtherFields(body, kind, row.ignored_fields));
  ASSIGN_OR_RETURN(std::optional<std::string> model, ReadText(body, "model"));
  row.model = std::move(model).value_or("");
  RETURN_IF_ERROR(ReadInput(body, kind, row));
  RETURN_IF_ERROR(ReadSampling(body, kind, limits, *row.request.mutable_sampling()));
  RETURN_IF_ERROR(ReadPromptReports(body, kind, row.request));
  if (const json* choices = FindField(body, "choices"); choices != nullptr) {
    RETURN_IF_ERROR(ReadChoices(*choices, limits, row.request));
  }
  RETURN_IF_ERROR(ReadPromptOptions(body, line, kind != RowKind::kPlain,
                                    *row.request.mutable_prompt_options()));
  return CheckRequest(row.request, limits);
}

bool IsOpenAiForm(const json& row) {
  return row.contains("body") || row.contains("url") || row.contains("method");
}

absl::Status ReadMethod(const json& row) {
  const json* method = FindField(row, "method");
  if (method == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kMissingField, "method", "is missing");
  }
  if (*method != "POST") {
    return RowError(reason::kFieldInvalid, row_code::kInvalidValue, "method", "must be POST");
  }
  return absl::OkStatus();
}

absl::StatusOr<RowKind> ReadUrl(const json& row, v1::InferenceRequest& request) {
  const json* url = FindField(row, "url");
  if (url != nullptr && *url == "/v1/chat/completions") {
    request.set_form(v1::REQUEST_FORM_OPENAI_CHAT);
    return RowKind::kChat;
  }
  if (url != nullptr && *url == "/v1/completions") {
    request.set_form(v1::REQUEST_FORM_OPENAI_COMPLETION);
    return RowKind::kCompletion;
  }
  return RowError(reason::kFieldInvalid,
                  url == nullptr ? row_code::kMissingField : row_code::kUrlMismatch, "url",
                  "must be /v1/chat/completions or /v1/completions");
}

absl::Status ReadOpenAiRow(const json& line, absl::string_view bytes, const ParseLimits& limits,
                           ParsedRow& row) {
  // What can be told of the row goes into its result, so form and id are read before refusing.
  row.request.set_form(v1::REQUEST_FORM_OPENAI_CHAT);
  const absl::StatusOr<RowKind> kind = ReadUrl(line, row.request);
  RETURN_IF_ERROR(ReadCustomId(line, limits, *row.request.mutable_custom_id()));
  RETURN_IF_ERROR(kind.status());
  RETURN_IF_ERROR(ReadMethod(line));
  const json* body = FindField(line, "body");
  if (body == nullptr) {
    return RowError(reason::kFieldInvalid, row_code::kMissingField, "body", "is missing");
  }
  if (!body->is_object()) {
    return WrongType("body", "an object", body->type_name());
  }
  RETURN_IF_ERROR(ReadMetadata(*body, bytes, /*is_nested=*/true, row.request));
  return ReadBody(*body, bytes, *kind, limits, row);
}

absl::Status ReadPlainRow(const json& line, absl::string_view bytes, const ParseLimits& limits,
                          ParsedRow& row) {
  row.request.set_form(v1::REQUEST_FORM_PLAIN);
  RETURN_IF_ERROR(ReadPlainId(line, limits, row));
  RETURN_IF_ERROR(ReadMetadata(line, bytes, /*is_nested=*/false, row.request));
  if (const json* error = FindField(line, "error"); error != nullptr) {
    return CallersError(*error);
  }
  return ReadBody(line, bytes, RowKind::kPlain, limits, row);
}

absl::Status ReadJsonRow(absl::string_view bytes, const ParseLimits& limits, ParsedRow& row) {
  auto line = ParseJsonLine(bytes, limits);
  if (!line.ok()) {
    return line.status();
  }
  return IsOpenAiForm(*line) ? ReadOpenAiRow(*line, bytes, limits, row)
                             : ReadPlainRow(*line, bytes, limits, row);
}

absl::Status ReadProtoRow(absl::string_view bytes, const ParseLimits& limits, ParsedRow& row) {
  if (static_cast<int64_t>(bytes.size()) > limits.max_line_bytes ||
      !row.request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return RowError(
        reason::kInputMalformed, row_code::kInvalidValue, "",
        absl::StrCat("row of ", bytes.size(), " bytes is no InferenceRequest of at most ",
                     limits.max_line_bytes, " bytes"));
  }
  return CheckRequest(row.request, limits);
}

}  // namespace

ParsedRow ParseRow(int32_t input_format, absl::string_view bytes, const ParseLimits& limits) {
  ParsedRow row;
  row.status = input_format == v1::INPUT_FORMAT_JSONL ? ReadJsonRow(bytes, limits, row)
                                                      : ReadProtoRow(bytes, limits, row);
  return row;
}

}  // namespace nightshift
