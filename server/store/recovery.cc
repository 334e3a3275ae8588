#include "server/store/recovery.h"

#include <string>
#include <vector>

#include "kernels/base/status_macros.h"

namespace nightshift {

absl::Status RecoverState(StoreActor& store, const StateDirectory& directory) {
  RETURN_IF_ERROR(store.WriteAndWait("", [](JobStore& jobs) { return jobs.Recover().status(); }));
  ASSIGN_OR_RETURN(const std::vector<std::string> input_files, store.store().InputFiles());
  return directory.RemoveStrayFiles(input_files);
}

}  // namespace nightshift
