#include "server/store/sqlite_schema.h"

#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kApplicationId = 0x4E534A53;  // "NSJS"

// kVersions[i] leads from version i to i + 1. An entry is never changed once released.
constexpr std::array<const char*, 7> kVersions = {R"sql(
  CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE jobs(
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    uid TEXT NOT NULL,
    tenant TEXT NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    model TEXT NOT NULL,
    spec BLOB NOT NULL,
    spec_crc INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    input_format INTEGER NOT NULL,
    input_file TEXT NOT NULL,
    state INTEGER NOT NULL,
    next_index INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    pending INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT 0,
    create_time_us INTEGER NOT NULL,
    start_time_us INTEGER NOT NULL DEFAULT 0,
    end_time_us INTEGER NOT NULL DEFAULT 0,
    error BLOB NOT NULL DEFAULT x'',
    error_crc INTEGER NOT NULL DEFAULT 0);
  CREATE UNIQUE INDEX jobs_by_submission ON jobs(tenant, request_id) WHERE request_id <> '';
  CREATE INDEX jobs_by_age ON jobs(create_time_us, id);
  CREATE INDEX jobs_open ON jobs(state) WHERE state < 6;
  CREATE TABLE rows(
    job INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    line INTEGER NOT NULL,
    state INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(job, idx)) WITHOUT ROWID;
  CREATE INDEX rows_open ON rows(job, state, idx) WHERE state = 1 OR state = 5;
  CREATE TABLE progress(
    job INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    body BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY(job, idx)) WITHOUT ROWID;
  CREATE TABLE results(
    key INTEGER PRIMARY KEY,
    idx INTEGER NOT NULL,
    body BLOB NOT NULL,
    crc INTEGER NOT NULL);
)sql",
                                                  R"sql(
  ALTER TABLE jobs ADD COLUMN report BLOB NOT NULL DEFAULT x'';
  ALTER TABLE jobs ADD COLUMN report_crc INTEGER NOT NULL DEFAULT 0;
)sql",
                                                  R"sql(
  ALTER TABLE jobs ADD COLUMN end_state INTEGER NOT NULL DEFAULT 8;
  UPDATE jobs SET end_state = 7 WHERE state = 5 AND error <> x'';
  ALTER TABLE jobs ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN expire_time_us INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN retry_of TEXT NOT NULL DEFAULT '';
  ALTER TABLE jobs ADD COLUMN purged INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN purging INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX jobs_purging ON jobs(number) WHERE purging <> 0;
  CREATE INDEX jobs_ended ON jobs(purged, end_time_us) WHERE end_time_us > 0;
  ALTER TABLE rows ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX results_by_row ON results(key >> 40, idx);
  UPDATE rows SET seq = (SELECT key & 1099511627775 FROM results
                         WHERE key >> 40 = rows.job AND results.idx = rows.idx)
    WHERE state IN (2, 3, 4) AND EXISTS (SELECT 1 FROM results
                                         WHERE key >> 40 = rows.job AND results.idx = rows.idx);
  DROP INDEX results_by_row;
)sql",
                                                  R"sql(
  ALTER TABLE jobs ADD COLUMN checked INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN checked_prompts INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN checked_prompt_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN longest_prompt_tokens INTEGER NOT NULL DEFAULT 0;
  UPDATE jobs SET checked = CASE WHEN state < 6 THEN next_index ELSE total END;
  UPDATE jobs SET state = 2 WHERE state = 1;
)sql",
                                                  R"sql(
  ALTER TABLE rows ADD COLUMN crc INTEGER NOT NULL DEFAULT -1;
)sql",
                                                  R"sql(
  ALTER TABLE jobs ADD COLUMN after_uid TEXT NOT NULL DEFAULT '';
  ALTER TABLE jobs ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
)sql",
                                                  R"sql(
  ALTER TABLE jobs ADD COLUMN input_bytes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0;
  UPDATE jobs SET
    input_bytes = coalesce((SELECT offset + length FROM rows WHERE job = number
                            ORDER BY idx DESC LIMIT 1), 0),
    result_bytes = coalesce((SELECT sum(length(body)) FROM results
                             WHERE key > number << 40 AND key < number + 1 << 40), 0)
    WHERE purged = 0;
  CREATE INDEX jobs_by_tenant ON jobs(tenant, create_time_us, id);
)sql"};

absl::Status SetAndReadBack(SqliteConnection& connection, const std::string& setting,
                            const std::string& value, const std::string& expected) {
  RETURN_IF_ERROR(connection.Execute(absl::StrCat("PRAGMA ", setting, "=", value)));
  ASSIGN_OR_RETURN(const std::string found, connection.Query("PRAGMA " + setting));
  if (found != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("sqlite setting ", setting, " is ", found, " after it was set to ", expected));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadNumber(SqliteConnection& connection, const std::string& pragma) {
  ASSIGN_OR_RETURN(const std::string text, connection.Query("PRAGMA " + pragma));
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return absl::DataLossError(absl::StrCat("sqlite setting ", pragma, " is not a number"));
  }
  return number;
}

absl::Status ConfigureWriter(SqliteConnection& connection) {
  RETURN_IF_ERROR(SetAndReadBack(connection, "journal_mode", "wal", "wal"));
  RETURN_IF_ERROR(SetAndReadBack(connection, "synchronous", "FULL", "2"));
  RETURN_IF_ERROR(SetAndReadBack(connection, "wal_autocheckpoint", "0", "0"));
  RETURN_IF_ERROR(SetAndReadBack(connection, "mmap_size", "0", "0"));
  return SetAndReadBack(connection, "secure_delete", "1", "1");
}

absl::Status Migrate(SqliteConnection& connection) {
  ASSIGN_OR_RETURN(const int64_t version, ReadNumber(connection, "user_version"));
  ASSIGN_OR_RETURN(const int64_t application_id, ReadNumber(connection, "application_id"));
  if (version > 0 && application_id != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("the database belongs to another program (application id ", application_id,
                     "); choose another state directory"));
  }
  if (version > SchemaVersion()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the database has schema version ", version, ", this program knows up to ",
                     SchemaVersion(), "; run the newer nightshiftd"));
  }
  for (int64_t next = version; next < SchemaVersion(); ++next) {
    RETURN_IF_ERROR(connection.Execute(absl::StrCat(
        "BEGIN IMMEDIATE;", kVersions[static_cast<size_t>(next)],
        "PRAGMA application_id=", kApplicationId, ";PRAGMA user_version=", next + 1, ";COMMIT")));
    Failpoint("migration_step");
  }
  return absl::OkStatus();
}

int64_t SchemaVersion() {
  return static_cast<int64_t>(kVersions.size());
}

}  // namespace nightshift
