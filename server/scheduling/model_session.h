// ModelSession: the one model that is loaded: its engine, and its text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/model_catalog.h"
#include "server/scheduling/model_text.h"

namespace nightshift {

struct ModelSession {
  ModelKey key;
  std::unique_ptr<Engine> engine;
  ModelTextPtr text;

  // `options` with the pack and the numeric mode of `key`. Looks for new packs when the model is
  // not known. Errors: the catalog's.
  static absl::StatusOr<EngineOptions> OptionsFor(const ModelKey& key, const EngineOptions& options,
                                                  ModelCatalog& catalog);
  // Loads the pack; `options` are those of OptionsFor, or a plan's. Errors: the catalog's, the
  // pack's, the engine's.
  static absl::StatusOr<std::unique_ptr<ModelSession>> Open(const ModelKey& key,
                                                            const EngineOptions& options,
                                                            ModelCatalog& catalog,
                                                            ModelTexts& texts,
                                                            const EngineFactory& factory);
};

}  // namespace nightshift
