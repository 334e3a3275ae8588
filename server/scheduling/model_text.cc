#include "server/scheduling/model_text.h"

#include <utility>

#include "engine/model/pack.h"
#include "engine/text/prompt_encoder.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::StatusOr<ModelTextPtr> ModelTexts::Get(const CatalogModel& model) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(model.path));
  const PackManifest& manifest = pack->manifest();
  // Held while it loads: who comes meanwhile wants the same.
  MutexLock lock(mutex_);
  std::weak_ptr<const ModelText>& known = texts_[model.path];
  if (ModelTextPtr text = known.lock(); text != nullptr && text->digest == manifest.digest) {
    return text;
  }
  auto text = std::make_shared<ModelText>();
  text->model = model.name;
  ASSIGN_OR_RETURN(text->encoder, PromptEncoder::Create(*pack));
  text->context_tokens = manifest.config.context_tokens;
  text->vocabulary = manifest.config.vocabulary;
  text->digest = manifest.digest;
  known = text;
  return ModelTextPtr(std::move(text));
}

}  // namespace nightshift
