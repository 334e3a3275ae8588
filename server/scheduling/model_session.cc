#include "server/scheduling/model_session.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace nightshift {
absl::StatusOr<EngineOptions> ModelSession::OptionsFor(const ModelKey& key,
                                                       const EngineOptions& options,
                                                       ModelCatalog& catalog) {
  absl::StatusOr<CatalogModel> model = catalog.Find(key.model);
  if (!model.ok()) {
    catalog.Rescan();
    model = catalog.Find(key.model);
  }
  RETURN_IF_ERROR(model.status());
  EngineOptions engine_options = options;
  engine_options.pack_path = model->path;
  engine_options.compute_type = key.compute_type;
  engine_options.kv_type = key.kv_type;
  engine_options.sparse_attention = key.sparse_attention;
  return engine_options;
}

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Open(const ModelKey& key,
                                                                 const EngineOptions& options,
                                                                 ModelCatalog& catalog,
                                                                 ModelTexts& texts,
                                                                 const EngineFactory& factory) {
  ASSIGN_OR_RETURN(const CatalogModel model, catalog.Find(key.model));
  auto session = std::make_unique<ModelSession>();
  session->key = key;
  ASSIGN_OR_RETURN(session->engine, factory(options));
  ASSIGN_OR_RETURN(session->text, texts.Get(model));
  return session;
}

}  // namespace nightshift
