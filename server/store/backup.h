// Backup: a copy of the state directory while the daemon runs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "server/store/janitor.h"
#include "server/store/sqlite_job_store.h"

namespace nightshift {

struct BackupReport {
  int64_t jobs = 0;
  int64_t bytes = 0;  // of the database and the inputs
};

// Copies what is committed in `store` and the inputs of its jobs to `target`, a new folder, which a
// daemon can then be started on. Inputs never change: on the same filesystem they are linked. The
// folder appears under its name when all of it is durable and its database was checked.
// Blocks; any thread but the store's. Errors: ALREADY_EXISTS (target), INVALID_ARGUMENT (it lies in
// the state directory), FAILED_PRECONDITION (it cannot be made), RESOURCE_EXHAUSTED (disk full), DATA_LOSS (an input is gone).
absl::StatusOr<BackupReport> BackupState(SqliteJobStore& store, Janitor& janitor,
                                         const std::string& state_directory,
                                         const std::string& target);

}  // namespace nightshift
