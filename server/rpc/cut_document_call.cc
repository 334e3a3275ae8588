#include "server/rpc/cut_document_call.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/text/prompt_encoder.h"
#include "engine/text/token_ends.h"
#include "kernels/base/status_macros.h"
#include "server/input/request_check.h"
#include "server/input/row_error.h"
#include "server/rpc/find_model.h"
#include "server/scheduling/document_cut.h"
#include "server/scheduling/request_encoding.h"
#include "server/scheduling/request_options.h"

namespace nightshift {
namespace {

absl::Status OutOfRange(const std::string& field, const std::string& description) {
  return MakeFieldError(reason::kFieldOutOfRange, {{field, description}});
}

// Whether a character begins at `offset`, or the text ends.
bool IsCharacterBorder(absl::string_view text, int64_t offset) {
  const auto at = static_cast<size_t>(offset);
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

absl::Status ModelError(const absl::Status& error, const std::string& model) {
  constexpr int64_t kMaxQuotedBytes = 128;
  const std::string name = CleanText(model, kMaxQuotedBytes);
  if (absl::IsNotFound(error)) {
    return MakeError(absl::StatusCode::kNotFound, reason::kModelNotFound,
                     absl::StrCat("model ", name, ": ", error.message()), {{"model", name}});
  }
  return MakeError(absl::StatusCode::kFailedPrecondition, reason::kModelUnavailable,
                   absl::StrCat("model ", name, ": ", error.message()), {{"model", name}});
}

}  // namespace

absl::StatusOr<ModelTextPtr> LastModelText::Get(const std::string& model, RpcContext& rpc) {
  ASSIGN_OR_RETURN(const CatalogModel found, FindModel(rpc.catalog, model));
  MutexLock lock(mutex_);
  if (text_ == nullptr || text_->model != found.name ||
      absl::StrCat(absl::Hex(text_->digest, absl::kZeroPad16)) != found.digest) {
    absl::StatusOr<ModelTextPtr> text = rpc.text_of(found);
    if (!text.ok()) {
      return ModelError(text.status(), found.name);
    }
    text_ = *std::move(text);
  }
  return text_;
}

void CutDocumentCall::Start() {
  const auto self = std::static_pointer_cast<CutDocumentCall>(shared_from_this());
  const absl::Status pushed = rpc_.scans.Push([self] { self->Respond(self->Cut()); });
  if (!pushed.ok()) {
    Respond(pushed);
  }
}

absl::StatusOr<v1::CutDocumentResponse> CutDocumentCall::Cut() {
  RETURN_IF_ERROR(Check());
  ASSIGN_OR_RETURN(const ModelTextPtr text, last_text_.Get(request_.spec().model(), rpc_));
  if (text->encoder->tokenizer() == nullptr) {
    return ModelError(absl::FailedPreconditionError("has no tokenizer: its prompts are token ids"),
                      text->model);
  }
  if (request_.request().has_chat() && !text->encoder->has_chat_template()) {
    return ModelError(
        absl::FailedPreconditionError("has no chat template: it takes prompts, not messages"),
        text->model);
  }
  ASSIGN_OR_RETURN(const int64_t max_prompt_tokens, MaxPromptTokens(*text));
  return CutFor(*text, max_prompt_tokens);
}

absl::Status CutDocumentCall::Check() {
  const v1::InferenceRequest& request = request_.request();
  RETURN_IF_ERROR(CheckRequest(request, rpc_.limits.parse));
  if (request.has_tokens() || request.choices_size() > 0) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"request", "must be a prompt or a chat, without choices"}});
  }
  if (const std::string wrong = CheckPromptOptions(request_.spec().prompt_options());
      !wrong.empty()) {
    return MakeFieldError(reason::kFieldInvalid, {{"spec.prompt_options", wrong}});
  }
  const v1::DocumentPlace& place = request_.document();
  const int messages = request.has_chat() ? request.chat().messages_size() : 1;
  if (place.message() < 0 || place.message() >= messages) {
    return OutOfRange("document.message",
                      absl::StrCat("is ", place.message(), ", must be 0 to ", messages - 1));
  }
  const std::string& content = Content();
  const auto size = static_cast<int64_t>(content.size());
  if (place.offset() < 0 || place.length() < 0 || place.offset() > size ||
      place.length() > size - place.offset() || !IsCharacterBorder(content, place.offset()) ||
      !IsCharacterBorder(content, place.offset() + place.length())) {
    return OutOfRange("document",
                      absl::StrCat("is at ", place.offset(), " and has ", place.length(),
                                   " bytes; must be characters of ", size, " bytes"));
  }
  if (request_.max_prompt_tokens() < 0) {
    return OutOfRange("max_prompt_tokens",
                      absl::StrCat("is ", request_.max_prompt_tokens(), ", must be 0 or more"));
  }
  if (request_.overlap_tokens() < 0) {
    return OutOfRange("overlap_tokens",
                      absl::StrCat("is ", request_.overlap_tokens(), ", must be 0 or more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CutDocumentCall::MaxPromptTokens(const ModelText& text) const {
  const v1::SamplingOptions sampling =
      MergeSampling(request_.spec().sampling(), request_.request().sampling());
  const int64_t output = sampling.has_max_output_tokens()
                             ? std::max<int64_t>(1, sampling.max_output_tokens())
                             : std::min<int64_t>(kDefaultMaxOutputTokens, text.context_tokens / 2);
  const int64_t most = text.context_tokens - output;
  if (most <= 0) {
    return OutOfRange("spec.sampling.max_output_tokens",
                      absl::StrCat("is ", output, "; the context of ", text.model, " is ",
                                   text.context_tokens, " tokens and leaves no room for a prompt"));
  }
  const int64_t wanted = request_.max_prompt_tokens();
  return wanted > 0 ? std::min(most, wanted) : most;
}

absl::StatusOr<v1::CutDocumentResponse> CutDocumentCall::CutFor(const ModelText& text,
                                                                int64_t max_prompt_tokens) {
  const std::string document(Document());
  const auto length = static_cast<int64_t>(document.size());
  v1::CutDocumentResponse response;
  response.set_max_prompt_tokens(max_prompt_tokens);
  ASSIGN_OR_RETURN(const int64_t prompt_tokens, Count(document, text));
  response.set_prompt_tokens(prompt_tokens);
  if (prompt_tokens <= max_prompt_tokens) {
    v1::DocumentPart& whole = *response.add_parts();
    whole.set_length(length);
    whole.set_prompt_tokens(prompt_tokens);
    return response;
  }
  const bool split = request_.too_long() == v1::TOO_LONG_SPLIT;
  if (!split && request_.too_long() != v1::TOO_LONG_TRUNCATE) {
    return RowError(
        reason::kPromptTooLong, row_code::kTooLong, "",
        absl::StrCat("the prompt has ", prompt_tokens, " tokens, at most ", max_prompt_tokens));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, text.encoder->tokenizer()->Encode(document, {}));
  ASSIGN_OR_RETURN(const std::vector<DocumentPiece> pieces,
                   CutDocument(document, TokenEnds(*text.encoder->tokenizer(), document, ids),
                               {.max_prompt_tokens = max_prompt_tokens,
                                .split = split,
                                .overlap_tokens = split ? request_.overlap_tokens() : 0},
                               [&](absl::string_view piece) { return Count(piece, text); }));
  for (const DocumentPiece& piece : pieces) {
    v1::DocumentPart& part = *response.add_parts();
    part.set_offset(static_cast<int64_t>(piece.offset));
    part.set_length(static_cast<int64_t>(piece.length));
    part.set_prompt_tokens(piece.prompt_tokens);
  }
  return response;
}

std::string& CutDocumentCall::Content() {
  v1::InferenceRequest& request = *request_.mutable_request();
  return request.has_chat() ? *request.mutable_chat()
                                   ->mutable_messages(request_.document().message())
                                   ->mutable_content()
                            : *request.mutable_prompt();
}

absl::string_view CutDocumentCall::Document() {
  return absl::string_view(Content()).substr(static_cast<size_t>(request_.document().offset()),
                                             static_cast<size_t>(request_.document().length()));
}

absl::StatusOr<int64_t> CutDocumentCall::Count(absl::string_view piece, const ModelText& text) {
  if (has_finished()) {
    return absl::CancelledError("the client left");
  }
  std::string& content = Content();
  std::string whole = std::exchange(content, {});
  const auto offset = static_cast<size_t>(request_.document().offset());
  const auto length = static_cast<size_t>(request_.document().length());
  const absl::string_view text_around = whole;
  content = absl::StrCat(text_around.substr(0, offset), piece, text_around.substr(offset + length));
  const absl::StatusOr<std::vector<int32_t>> tokens = EncodeRequest(
      request_.request(), request_.spec().prompt_options(), rpc_.clock.WallMicros(), text);
  content = std::move(whole);
  if (!tokens.ok()) {
    return CannotEncode(request_.request(), tokens.status());
  }
  return static_cast<int64_t>(tokens->size());
}

}  // namespace nightshift
