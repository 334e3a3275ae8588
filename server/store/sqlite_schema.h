// The database's schema, its versions and the settings that our promises rest on.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/store/sqlite_statement.h"

namespace nightshift {

// Results of one job lie together, in order: key = job number * kMaxResultsPerJob + seq.
inline constexpr int64_t kMaxResultsPerJob = int64_t{1} << 40;
inline constexpr int64_t kMaxJobNumber = (int64_t{1} << 23) - 1;

// What rows.state holds: RowState, and one state more for rows that were claimed and given back.
// Fresh pending rows have an index >= jobs.next_index, the first of them; so none of them needs an
// index entry while it waits, and a claim passes over those claimed out of order only.
inline constexpr int64_t kRowReturned = 5;

// What jobs.state holds of a deleted job whose rows are not freed yet; its id is made unusable. A
// result's place is kept with its row too (rows.seq, 0 for none), for reading in input order.
inline constexpr int64_t kJobDeleted = 10;
// What jobs.purging holds: whether the record goes once rows and results are freed.
inline constexpr int64_t kPurgeResults = 1;
inline constexpr int64_t kPurgeJob = 2;

// Sets WAL, synchronous=FULL and no automatic checkpoint on the writer's connection and reads each
// back. Source: sqlite.org/wal.html (the WAL-reset bug of 3.7.0 to 3.51.2 is why only the writer
// checkpoints).
absl::Status ConfigureWriter(SqliteConnection& connection);

// The number that a setting has.
absl::StatusOr<int64_t> ReadNumber(SqliteConnection& connection, const std::string& pragma);

// Brings the schema to this program's version, one transaction a version. Errors:
// FAILED_PRECONDITION for a newer schema or a database of another program.
absl::Status Migrate(SqliteConnection& connection);

// The version that Migrate leads to.
int64_t SchemaVersion();

}  // namespace nightshift
