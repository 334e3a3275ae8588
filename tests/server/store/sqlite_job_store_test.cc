// What is SQLite's own; the promises of every store are in job_store_test.
#include "server/store/sqlite_job_store.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "server/store/sqlite_schema.h"
#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

class SqliteJobStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/store.sqlite"; }
  std::unique_ptr<SqliteJobStore> Open() {
    auto store = SqliteJobStore::Open({.path = path()});
    EXPECT_OK(store);
    return *std::move(store);
  }
  // Runs SQL behind the back of a closed store.
  void Tamper(const std::string& sql) {
    auto connection = SqliteConnection::Open(path(), /*read_only=*/false);
    ASSERT_OK(connection);
    ASSERT_OK((*connection)->Execute(sql));
  }
  // A job with this many rows, all published with bodies of 100 bytes.
  static void AddFinishedJob(JobStore& store, const std::string& id, int64_t num_rows) {
    JobRecord job;
    job.id = id;
    std::vector<NewRow> rows;
    std::vector<FinishedRow> finished;
    for (int64_t i = 0; i < num_rows; ++i) {
      rows.push_back({.index = i, .error_body = {}});
      finished.push_back({.job_id = id, .index = i, .body = std::string(100, 'b')});
    }
    ASSERT_OK(store.Begin());
    ASSERT_OK(store.InsertJob(job));
    ASSERT_OK(store.InsertRows(id, rows));
    ASSERT_OK(store.FinishReceiving(id, 0));
    ASSERT_OK(store.Publish(finished, 0));
    ASSERT_OK(store.Commit());
  }

  static std::string FileBytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string Flipped(std::string bytes, size_t place, unsigned bit) {
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << bit));
    return bytes;
  }

  TemporaryFolder folder_;
};

TEST_F(SqliteJobStoreTest, KeepsItsFilesPrivate) {
  const auto store = Open();
  AddFinishedJob(*store, "a", 1);
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat found = {};
    ASSERT_EQ(stat((path() + suffix).c_str(), &found), 0) << suffix;
    EXPECT_EQ(found.st_mode & 0777U, 0600U) << suffix;
  }
}

TEST_F(SqliteJobStoreTest, RefusesANewerSchema) {
  Open();
  Tamper(absl::StrCat("PRAGMA user_version=", SchemaVersion() + 1));
  EXPECT_THAT(SqliteJobStore::Open({.path = path()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "newer"));
}

TEST_F(SqliteJobStoreTest, RefusesADatabaseOfAnotherProgram) {
  Open();
  Tamper("PRAGMA application_id=7");
  EXPECT_THAT(SqliteJobStore::Open({.path = path()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "another program"));
}

TEST_F(SqliteJobStoreTest, RefusesAFileThatIsNoDatabase) {
  std::ofstream(path()) << std::string(5000, 'n');
  EXPECT_THAT(SqliteJobStore::Open({.path = path()}),
              StatusIs(absl::StatusCode::kDataLoss, "not a database"));
}

TEST_F(SqliteJobStoreTest, ReportsADamagedResultAndServesTheOthers) {
  AddFinishedJob(*Open(), "a", 3);
  Tamper("UPDATE results SET body = x'00' WHERE idx = 1");
  const auto store = Open();
  auto before = store->ReadResults("a", 0, 1 << 20);
  ASSERT_OK(before);
  EXPECT_EQ(before->size(), 1U);
  EXPECT_THAT(store->ReadResults("a", 1, 1 << 20),
              StatusIs(absl::StatusCode::kDataLoss, "result 2 of job a"));
  EXPECT_OK(store->ReadResults("a", 2, 1 << 20));
}

TEST_F(SqliteJobStoreTest, ReportsAMissingResult) {
  AddFinishedJob(*Open(), "a", 2);
  Tamper("DELETE FROM results WHERE idx = 1");
  EXPECT_THAT(Open()->ReadResults("a", 1, 1),
              StatusIs(absl::StatusCode::kDataLoss, "result 2 of job a"));
}

TEST_F(SqliteJobStoreTest, ADamagedJobIsReportedAndHidesNoOther) {
  {
    const auto store = Open();
    AddFinishedJob(*store, "a", 1);
    AddFinishedJob(*store, "b", 1);
  }
  Tamper("UPDATE jobs SET spec = x'01' WHERE id = 'a'");
  const auto store = Open();
  EXPECT_THAT(store->GetJob("a"), StatusIs(absl::StatusCode::kDataLoss, "job a"));
  auto jobs = store->ListJobs({}, 10);
  ASSERT_OK(jobs);
  EXPECT_EQ(jobs->size(), 1U);
}

// Files that earlier versions wrote, each with the jobs of tests/data/make_store_fixtures.py.
TEST_F(SqliteJobStoreTest, OpensDatabasesOfEveryEarlierVersion) {
  for (int version = 1; version < SchemaVersion(); ++version) {
    SCOPED_TRACE(version);
    std::filesystem::copy_file(absl::StrCat(TEST_DATA_DIR, "/store/version-", version, ".sqlite"),
                               path(), std::filesystem::copy_options::overwrite_existing);
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    ASSERT_OK_AND_ASSIGN(const JobRecord done, store->GetJob("done"));
    EXPECT_EQ(done.state, JobState::kSucceeded);
    EXPECT_EQ(done.report, version >= 2 ? "report" : "");
    ASSERT_OK_AND_ASSIGN(const auto results, store->ReadResultsInInputOrder("done", 0, 1 << 20));
    ASSERT_EQ(results.size(), 3U);
    EXPECT_EQ(results[0].body, "result of row 0");
    EXPECT_EQ(results[2].seq, 1);
    ASSERT_OK_AND_ASSIGN(const JobRecord failing, store->GetJob("failing"));
    EXPECT_EQ(failing.state, JobState::kCancelling);
    EXPECT_EQ(failing.end_state, JobState::kFailed);
    ASSERT_OK_AND_ASSIGN(const JobRecord cancelling, store->GetJob("cancelling"));
    EXPECT_EQ(cancelling.end_state, JobState::kCancelled);
    ASSERT_OK(store->Begin());
    ASSERT_OK_AND_ASSIGN(const auto claimed, store->Claim("open", 10, {}, 0));
    EXPECT_EQ(claimed.size(), 1U);
    ASSERT_OK(store->Commit());
    ASSERT_OK_AND_ASSIGN(const auto prefix, store->ReadResultsInInputOrder("open", 0, 1 << 20));
    EXPECT_EQ(prefix.size(), 1U);
    EXPECT_EQ(done.checked, 3) << "what has ended needs no check";
    EXPECT_EQ(done.after_uid, "");
    EXPECT_EQ(done.input_bytes, 29);
    EXPECT_EQ(done.result_bytes, 45);
    ASSERT_OK_AND_ASSIGN(const TenantUsage usage, store->ReadUsage("default"));
    EXPECT_EQ(usage.active_jobs, version >= 3 ? 4 : 3);
    EXPECT_EQ(usage.queued_requests, version >= 3 ? 5 : 3);
    if (version >= 3) {
      ASSERT_OK_AND_ASSIGN(const JobRecord queued, store->GetJob("queued"));
      EXPECT_EQ(queued.state, JobState::kValidating);
      EXPECT_EQ(queued.checked, 0);
    }
  }
}

TEST_F(SqliteJobStoreTest, ABackupHoldsWhatWasCommittedAndIsItselfAStore) {
  const auto store = Open();
  AddFinishedJob(*store, "a", 10);
  ASSERT_OK(store->Begin());
  JobRecord later;
  later.id = "later";
  ASSERT_OK(store->InsertJob(later));
  const std::string target = folder_.path() + "/backup.sqlite";
  ASSERT_OK(store->Backup(target)) << "while a transaction is open";
  ASSERT_OK(store->Commit());
  EXPECT_THAT(store->Backup(target), StatusIs(absl::StatusCode::kAlreadyExists, "backup.sqlite"));
  auto copy = SqliteJobStore::Open({.path = target});
  ASSERT_OK(copy);
  ASSERT_OK_AND_ASSIGN(const auto results, (*copy)->ReadResults("a", 0, 1 << 20));
  EXPECT_EQ(results.size(), 10U);
  EXPECT_THAT((*copy)->FindSubmission("", "later"), StatusIs(absl::StatusCode::kNotFound, ""));
  AddFinishedJob(**copy, "of the copy", 1);
  EXPECT_THAT(store->GetJob("of the copy"), StatusIs(absl::StatusCode::kNotFound, ""));
}

TEST_F(SqliteJobStoreTest, ADamagedReportIsLeftOutAndItsJobServed) {
  {
    const auto store = Open();
    AddFinishedJob(*store, "a", 1);
    ASSERT_OK(store->Begin());
    ASSERT_OK(store->SaveReports({{"a", "report"}}));
    ASSERT_OK(store->Commit());
  }
  Tamper("UPDATE jobs SET report = x'01'");
  ASSERT_OK_AND_ASSIGN(const JobRecord job, Open()->GetJob("a"));
  EXPECT_EQ(job.report, "");
  EXPECT_EQ(job.counts.succeeded, 1);
}

TEST_F(SqliteJobStoreTest, FindsDamageAfterAnUncleanStop) {
  AddFinishedJob(*Open(), "a", 2000);
  Tamper("UPDATE meta SET value = 0 WHERE key = 'clean'");
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path()) / 2));
    file << std::string(5000, '\xAB');
  }
  EXPECT_THAT(SqliteJobStore::Open({.path = path()}),
              StatusIs(absl::StatusCode::kDataLoss, "damaged"));
}

// Whatever bit of the file flips, in pages that hold something: what it had held is told to be lost.
TEST_F(SqliteJobStoreTest, AFlippedBitOfTheDatabaseIsFound) {
  AddFinishedJob(*Open(), "a", 300);
  Tamper("UPDATE meta SET value = 0 WHERE key = 'clean'");  // as after a crash
  const std::string bytes = FileBytes(path());
  std::mt19937 random(20251130);
  for (int flip = 0; flip < 25; ++flip) {
    const size_t place = random() % bytes.size();
    WriteFileBytes(path(), Flipped(bytes, place, random() % 8));
    EXPECT_THAT(SqliteJobStore::Open({.path = path()}),
                StatusIs(absl::StatusCode::kDataLoss, "is damaged"))
        << "byte " << place;
  }
  WriteFileBytes(path(), bytes);
  EXPECT_EQ(Open()->ReadResults("a", 0, 1 << 20)->size(), 300U);
}

TEST_F(SqliteJobStoreTest, APageThatIsDamagedWhileItRunsIsNotServed) {
  AddFinishedJob(*Open(), "a", 3000);
  const auto store = Open();
  const std::string bytes = FileBytes(path());
  const size_t place = bytes.rfind("bbbb");  // in a result
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(place));
    file << 'c';
  }
  absl::Status status;
  int64_t seq = 0;
  while (status.ok() && seq < 3000) {
    const auto results = store->ReadResults("a", seq, 1000);
    status = results.status();
    seq += results.ok() ? static_cast<int64_t>(results->size()) : 0;
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "checksum"));
}

// A log of many commits, as a kill leaves it: SQLite alone would take a damaged one for shorter.
TEST_F(SqliteJobStoreTest, AFlippedBitOfTheLogIsFoundUnlessItIsInTheLastCommit) {
  const auto store = Open();
  for (int job = 0; job < 20; ++job) {
    AddFinishedJob(*store, absl::StrCat("job-", job), 3);
  }
  const std::string database = FileBytes(path());
  const std::string before_last = FileBytes(path() + "-wal");
  AddFinishedJob(*store, "last", 3);
  const std::string log = FileBytes(path() + "-wal");
  std::mt19937 random(20251130);
  const std::string copy = folder_.path() + "/copy.sqlite";
  const auto open_copy = [&](const std::string& flipped) {
    WriteFileBytes(copy, database);
    WriteFileBytes(copy + "-wal", flipped);
    return SqliteJobStore::Open({.path = copy});
  };
  for (int flip = 0; flip < 25; ++flip) {
    const size_t place = 32 + random() % (before_last.size() - 32);
    EXPECT_THAT(open_copy(Flipped(log, place, random() % 8)),
                StatusIs(absl::StatusCode::kDataLoss, "broken frame"))
        << "byte " << place;
  }
  EXPECT_THAT(open_copy(Flipped(log, 9, 0)), StatusIs(absl::StatusCode::kDataLoss, "header"));
  auto cut_off = open_copy(log.substr(0, log.size() - 5000));
  ASSERT_OK(cut_off);
  EXPECT_OK((*cut_off)->GetJob("job-19"));
  EXPECT_THAT((*cut_off)->GetJob("last"), StatusIs(absl::StatusCode::kNotFound, "last"));
}

TEST_F(SqliteJobStoreTest, ACleanStopLeavesOneFile) {
  AddFinishedJob(*Open(), "a", 10);
  EXPECT_FALSE(std::filesystem::exists(path() + "-wal"));
}

TEST_F(SqliteJobStoreTest, ACopyTakenWhileItRunsHoldsWhatWasCommitted) {
  const auto store = Open();
  AddFinishedJob(*store, "a", 10);
  // What a machine that stops now would find.
  const std::string copy = folder_.path() + "/copy.sqlite";
  std::filesystem::copy_file(path(), copy);
  std::filesystem::copy_file(path() + "-wal", copy + "-wal");
  auto reopened = SqliteJobStore::Open({.path = copy});
  ASSERT_OK(reopened);
  EXPECT_EQ((*reopened)->GetJob("a")->last_seq, 10);
}

TEST_F(SqliteJobStoreTest, CheckpointsKeepTheLogBounded) {
  const auto store = Open();
  uintmax_t largest = 0;
  for (int i = 0; i < 40; ++i) {
    AddFinishedJob(*store, absl::StrCat("job-", i), 5000);
    ASSERT_OK(store->Checkpoint());
    largest = std::max(largest, std::filesystem::file_size(path() + "-wal"));
  }
  // 16 MiB, and what one transaction adds; without checkpoints it would hold all 40 jobs.
  EXPECT_LT(largest, uintmax_t{20} << 20U);
  EXPECT_GT(std::filesystem::file_size(path()), uintmax_t{8} << 20U);
}

// The claim and the publication of a row must not depend on how many rows have ended before.
TEST_F(SqliteJobStoreTest, ClaimDoesNotWalkOverFinishedRows) {
  const auto store = Open();
  auto connection = SqliteConnection::Open(path(), /*read_only=*/true);
  ASSERT_OK(connection);
  for (const char* sql :
       {"SELECT idx FROM rows INDEXED BY rows_open WHERE job = 1 AND state = 5 ORDER BY idx",
        "SELECT idx FROM rows WHERE job = 1 AND idx >= 7 AND idx < 9 AND state = 0 ORDER BY idx"}) {
    auto statement = (*connection)->Prepare(absl::StrCat("EXPLAIN QUERY PLAN ", sql));
    ASSERT_OK(statement);
    ASSERT_OK(statement->Step());
    EXPECT_THAT(statement->Bytes(3), ::testing::HasSubstr("SEARCH"));
    EXPECT_THAT(statement->Step(), ::testing::Property(&absl::StatusOr<bool>::value, false))
        << "needs no sorter";
  }
}

}  // namespace
}  // namespace nightshift
