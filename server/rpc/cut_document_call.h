// CutDocument: where a document must be cut so that the request around it fits; on the scan thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"
#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"
#include "server/scheduling/model_text.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// The tokenizer and template that documents were cut for last. They are kept, because many calls
// follow each other and loading a tokenizer takes tenths of a second. Thread-safe.
class LastModelText {
 public:
  // Of a model of the catalog, empty for the only one, as the catalog knows it: a pack that was
  // made anew is seen when the catalog is scanned. Errors: as SubmitJob's of a model.
  absl::StatusOr<ModelTextPtr> Get(const std::string& model, RpcContext& rpc);

 private:
  Mutex mutex_;
  ModelTextPtr text_ ABSL_GUARDED_BY(mutex_);
};

class CutDocumentCall : public UnaryCall<v1::CutDocumentResponse> {
 public:
  CutDocumentCall(grpc::CallbackServerContext* context, v1::CutDocumentRequest request,
                  v1::CutDocumentResponse* response, LastModelText& last_text, RpcContext& rpc)
      : UnaryCall(context, response),
        request_(std::move(request)),
        rpc_(rpc),
        last_text_(last_text) {}
  void Start();

 private:
  absl::StatusOr<v1::CutDocumentResponse> Cut();
  absl::Status Check();
  absl::StatusOr<int64_t> MaxPromptTokens(const ModelText& text) const;
  absl::StatusOr<v1::CutDocumentResponse> CutFor(const ModelText& text, int64_t max_prompt_tokens);
  // The prompt or the message's content that holds the document; request_ is as Check left it.
  std::string& Content();
  absl::string_view Document();
  // Of the request with `piece` in place of its document.
  absl::StatusOr<int64_t> Count(absl::string_view piece, const ModelText& text);

  v1::CutDocumentRequest request_;
  RpcContext& rpc_;
  LastModelText& last_text_;
};

}  // namespace nightshift
