// ModelText: the daemon's own half of a model: text to tokens, and the limits that a request must
// meet. It needs the pack's tokenizer, template and manifest, no engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/scheduling/model_catalog.h"

namespace nightshift {

class PromptEncoder;

// Immutable, thread-safe.
struct ModelText {
  std::string model;
  std::unique_ptr<PromptEncoder> encoder;
  int64_t context_tokens = 0;
  int64_t vocabulary = 0;
  uint64_t digest = 0;  // of the pack: ids of other packs are other ids
};

// Shared: requests of a session that was closed may still be in the preparer.
using ModelTextPtr = std::shared_ptr<const ModelText>;

// Loads the text of each pack once for all who use it at one time. Thread-safe.
class ModelTexts {
 public:
  // Of the pack as it lies there now. Errors: the pack's, the tokenizer's, the template's.
  absl::StatusOr<ModelTextPtr> Get(const CatalogModel& model);

 private:
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<const ModelText>> texts_ ABSL_GUARDED_BY(mutex_);  // by path
};

}  // namespace nightshift
