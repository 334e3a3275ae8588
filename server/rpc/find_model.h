// A model of the catalog by the name that a caller gives.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "server/scheduling/model_catalog.h"

namespace nightshift {

// Empty: the only one. Looks at the disk again before it refuses: the model may have been imported
// since. Errors: NOT_FOUND (MODEL_NOT_FOUND), FAILED_PRECONDITION (MODEL_UNAVAILABLE).
absl::StatusOr<CatalogModel> FindModel(ModelCatalog& catalog, const std::string& name);

}  // namespace nightshift
