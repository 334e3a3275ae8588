#include "server/scheduling/request_encoding.h"

#include "engine/text/prompt_encoder.h"
#include "kernels/base/status_macros.h"
#include "server/input/row_error.h"
#include "server/scheduling/request_options.h"

namespace nightshift {

absl::StatusOr<std::vector<int32_t>> EncodeRequest(const v1::InferenceRequest& request,
                                                   const v1::PromptOptions& job_options,
                                                   int64_t create_time_us, const ModelText& text,
                                                   const std::string& continuation) {
  ASSIGN_OR_RETURN(EncodeOptions options,
                   ResolvePromptOptions(job_options, request.prompt_options(), create_time_us));
  options.continuation = continuation;
  switch (request.input_case()) {
    case v1::InferenceRequest::kPrompt:
      return text.encoder->EncodePrompt(request.prompt(), options);
    case v1::InferenceRequest::kChat:
      return text.encoder->EncodeChat(MessagesToJson(request.chat()), options);
    case v1::InferenceRequest::kTokens:
      return std::vector<int32_t>(request.tokens().ids().begin(), request.tokens().ids().end());
    case v1::InferenceRequest::INPUT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the request has no input");
}

absl::Status CannotEncode(const v1::InferenceRequest& request, const absl::Status& error) {
  const bool is_template = request.has_chat() && !absl::IsFailedPrecondition(error);
  return RowError(reason::kInputMalformed,
                  is_template ? row_code::kTemplate : row_code::kInvalidValue,
                  is_template ? "messages" : "", error.message());
}

}  // namespace nightshift
