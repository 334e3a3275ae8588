#include "server/rpc/find_model.h"

#include "absl/status/status.h"

#include "server/input/rpc_error.h"

namespace nightshift {

absl::StatusOr<CatalogModel> FindModel(ModelCatalog& catalog, const std::string& name) {
  auto model = catalog.Find(name);
  if (!model.ok()) {
    catalog.Rescan();
    model = catalog.Find(name);
  }
  if (absl::IsNotFound(model.status())) {
    return MakeError(absl::StatusCode::kNotFound, reason::kModelNotFound, model.status().message(),
                     {{"model", name}});
  }
  if (!model.ok()) {  // a caller who comes again soon finds no other pack
    return MakeError(absl::StatusCode::kFailedPrecondition, reason::kModelUnavailable,
                     model.status().message(), {{"model", name}});
  }
  return model;
}

}  // namespace nightshift
