// RecoverState: the first thing that a daemon does with its state.
#pragma once

#include "absl/status/status.h"

#include "server/store/state_directory.h"
#include "server/store/store_actor.h"

namespace nightshift {

// Gives rows that were running back, forgets jobs that were never received whole, and removes the
// files of no job. Before anything is received or run. Waits. Errors: the store's.
absl::Status RecoverState(StoreActor& store, const StateDirectory& directory);

}  // namespace nightshift
