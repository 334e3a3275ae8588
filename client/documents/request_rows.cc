#include "client/documents/request_rows.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "client/rpc_error.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// With the daemon's 4 MiB of a message in mind.
constexpr size_t kMaxRequestBytes = 3'900'000;

// All texts are UTF-8 by now, but for the daemon's words.
std::string Line(const Json& row) {
  return row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json MetadataOf(const Document& document) {
  Json metadata = Json::object();
  if (document.first_parts > 0) {
    metadata["merged_parts"] = document.first_parts;
  }
  return metadata;
}

std::string PromptRow(const std::string& id, const std::vector<PromptMessage>& messages,
                      const Json& metadata) {
  Json row = {{"id", id}};
  if (messages.front().role.empty()) {
    row["prompt"] = messages.front().content;
  } else {
    for (const PromptMessage& message : messages) {
      row["messages"].push_back({{"role", message.role}, {"content", message.content}});
    }
  }
  if (!metadata.empty()) {
    row["metadata"] = metadata;
  }
  return Line(row);
}

bool IsBlank(const RenderedPrompt& prompt) {
  const FieldPlace& place = prompt.longest_field.front();
  return absl::StripAsciiWhitespace(
             absl::string_view(prompt.messages[place.message].content)
                 .substr(place.offset, place.length))
      .empty();
}

// What the daemon refuses of this document alone is marked with the code of a row's error.
std::optional<DocumentError> ErrorOfRow(const absl::Status& error) {
  const ErrorDetails details = DetailsOf(error);
  const auto code = details.metadata.find("code");
  if (!absl::IsInvalidArgument(error) || code == details.metadata.end()) {
    return std::nullopt;
  }
  return DocumentError{code->second, std::string(error.message())};
}

}  // namespace

std::string RequestRows::ErrorRow(const Document& document, DocumentError error) {
  ++counts_.failed;
  Json row = {{"id", document.id},
              {"error", {{"code", error.code}, {"message", error.message}}}};
  if (const Json metadata = MetadataOf(document); !metadata.empty()) {
    row["metadata"] = metadata;
  }
  last_error_ = std::move(error);
  return Line(row);
}

absl::StatusOr<std::string> RequestRows::RowsOf(const Document& document) {
  ++counts_.documents;
  if (document.error.has_value()) {
    return ErrorRow(document, *document.error);
  }
  if (const absl::Status fits = template_.Check(document); !fits.ok()) {
    if (document.has_fixed_fields) {
      return fits;
    }
    return ErrorRow(document, {document_code::kMissingField, std::string(fits.message())});
  }
  const RenderedPrompt prompt = template_.Render(document);
  if (IsBlank(prompt)) {
    return ErrorRow(document,
                    {document_code::kEmpty, absl::StrCat(document.id, ": has no text")});
  }
  if (options_.too_long == v1::TOO_LONG_ERROR && options_.max_prompt_tokens == 0) {
    ++counts_.requests;
    return PromptRow(document.id, prompt.messages, MetadataOf(document));
  }
  return FittedRows(document, prompt);
}

absl::StatusOr<std::string> RequestRows::FittedRows(const Document& document,
                                                    const RenderedPrompt& prompt) {
  ASSIGN_OR_RETURN(const v1::CutDocumentRequest request, CutRequest(prompt));
  if (request.ByteSizeLong() > kMaxRequestBytes) {
    return ErrorRow(document, {document_code::kTooLarge,
                               absl::StrCat(document.id, ": its prompt has ",
                                            request.ByteSizeLong(), " bytes, at most ",
                                            kMaxRequestBytes)});
  }
  const absl::StatusOr<v1::CutDocumentResponse> cut = ask_(request);
  if (!cut.ok()) {
    if (std::optional<DocumentError> error = ErrorOfRow(cut.status())) {
      error->message = absl::StrCat(document.id, ": ", error->message);
      return ErrorRow(document, *std::move(error));
    }
    return cut.status();
  }
  if (document.last_parts > 0 && cut->parts_size() >= document.last_parts) {
    return ErrorRow(document,
                    {document_code::kNotMerged,
                     absl::StrCat(document.id, ": the outputs of ", document.last_parts,
                                  " parts together are as long as ", cut->parts_size(),
                                  " parts again; use a smaller --max-tokens")});
  }
  return CutRows(document, prompt, *cut);
}

absl::StatusOr<v1::CutDocumentRequest> RequestRows::CutRequest(const RenderedPrompt& prompt) const {
  if (prompt.longest_field.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the template names the longest field ", prompt.longest_field.size(),
                     " times; what may be cut (--too-long, --max-prompt-tokens) must be there once"));
  }
  v1::CutDocumentRequest request;
  *request.mutable_spec() = options_.spec;
  if (prompt.messages.front().role.empty()) {
    request.mutable_request()->set_prompt(prompt.messages.front().content);
  } else {
    for (const PromptMessage& message : prompt.messages) {
      v1::ChatMessage& added = *request.mutable_request()->mutable_chat()->add_messages();
      added.set_role(message.role);
      added.set_content(message.content);
    }
  }
  const FieldPlace& place = prompt.longest_field.front();
  request.mutable_document()->set_message(static_cast<int32_t>(place.message));
  request.mutable_document()->set_offset(static_cast<int64_t>(place.offset));
  request.mutable_document()->set_length(static_cast<int64_t>(place.length));
  request.set_too_long(options_.too_long);
  request.set_max_prompt_tokens(options_.max_prompt_tokens);
  request.set_overlap_tokens(options_.overlap_tokens);
  return request;
}

std::string RequestRows::CutRows(const Document& document, const RenderedPrompt& prompt,
                                 const v1::CutDocumentResponse& cut) {
  const FieldPlace& place = prompt.longest_field.front();
  const std::string& content = prompt.messages[place.message].content;
  const int parts = cut.parts_size();
  counts_.split += parts > 1 ? 1 : 0;
  std::string rows;
  for (int i = 0; i < parts; ++i) {
    const v1::DocumentPart& part = cut.parts(i);
    const auto offset = place.offset + static_cast<size_t>(part.offset());
    const auto length = static_cast<size_t>(part.length());
    std::string id = document.id;
    Json metadata = MetadataOf(document);
    if (parts > 1) {
      absl::StrAppend(&id, "#", i + 1, "/", parts);
      metadata["part"] = {{"document", document.id}, {"number", i + 1}, {"of", parts}};
    } else if (length < place.length) {
      ++counts_.truncated;
      metadata["truncated"] = {{"prompt_tokens", cut.prompt_tokens()},
                               {"kept_prompt_tokens", part.prompt_tokens()}};
    }
    std::vector<PromptMessage> messages = prompt.messages;
    messages[place.message].content =
        absl::StrCat(content.substr(0, place.offset), content.substr(offset, length),
                     content.substr(place.offset + place.length));
    rows += PromptRow(id, messages, metadata);
    ++counts_.requests;
  }
  return rows;
}

std::optional<PartOfDocument> PartOf(const v1::Result& result) {
  const Json metadata = Json::parse(result.metadata(), nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object() || !metadata.contains("part")) {
    return std::nullopt;
  }
  const Json& part = metadata["part"];
  const auto number = [](const Json& json, const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_number_integer()
               ? json[name].get<int64_t>()
               : 0;
  };
  if (!part.is_object() || !part.contains("document") || !part["document"].is_string()) {
    return std::nullopt;
  }
  PartOfDocument found = {.document = part["document"].get<std::string>(),
                          .number = number(part, "number"),
                          .of = number(part, "of"),
                          .first_parts = number(metadata, "merged_parts")};
  if (found.first_parts == 0) {
    found.first_parts = found.of;
  }
  return found;
}

}  // namespace nightshift
