// SqliteConnection and SqliteStatement: SQLite's C interface as owning types and statuses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace nightshift {

class SqliteConnection;

// A prepared statement on loan from its connection's cache; given back, reset, when destroyed.
// Parameters are bound in the order of the Bind calls. One thread.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  SqliteStatement& Bind(int64_t value);
  SqliteStatement& Bind(absl::string_view text);
  SqliteStatement& BindBlob(absl::string_view bytes);

  // True when a row is there to read, false at the end.
  absl::StatusOr<bool> Step();
  // Runs to the end, then is ready to be bound and run again.
  absl::Status Run();
  // Forgets position and bindings: ready to be bound and run again.
  void Reset();

  // Columns of the current row, from 0.
  int64_t Int64(int column) const;
  std::string Bytes(int column) const;

 private:
  friend class SqliteConnection;
  SqliteStatement(SqliteConnection* connection, std::string sql, sqlite3_stmt* statement)
      : connection_(connection), sql_(std::move(sql)), statement_(statement) {}

  SqliteConnection* connection_;
  std::string sql_;
  sqlite3_stmt* statement_;
  int next_parameter_ = 1;
};

// One connection and its statements. One thread at a time; must outlive its statements.
class SqliteConnection {
 public:
  // Opens an existing file. Errors: as StatusOf.
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> Open(const std::string& path,
                                                                bool read_only);
  ~SqliteConnection();
  SqliteConnection(const SqliteConnection&) = delete;
  SqliteConnection& operator=(const SqliteConnection&) = delete;

  // Compiles `sql`, or lends it from the cache.
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);
  // Runs a script of statements without parameters, ignoring their rows.
  absl::Status Execute(const std::string& script);
  // The first column of the first row of `sql`, as text; empty for no row.
  absl::StatusOr<std::string> Query(const std::string& sql);

  // Rows that the last INSERT, UPDATE or DELETE changed.
  int64_t num_changed() const;
  bool in_transaction() const;
  // Set once a write or sync failed or the file was found damaged: what it holds is unknown until it
  // is opened again and checked.
  const absl::Status& io_error() const { return io_error_; }
  sqlite3* handle() const { return database_; }

  // What a result code means to us: RESOURCE_EXHAUSTED (disk full, no memory), DATA_LOSS (damaged
  // file), ALREADY_EXISTS (constraint), UNAVAILABLE (locked by someone else), FAILED_PRECONDITION
  // (no such file, no permission), INTERNAL (the rest). Keeps an I/O error in io_error().
  absl::Status StatusOf(int code, absl::string_view tried);

 private:
  friend class SqliteStatement;
  explicit SqliteConnection(std::string path) : path_(std::move(path)) {}

  std::string path_;
  sqlite3* database_ = nullptr;
  absl::Status io_error_;
  std::map<std::string, sqlite3_stmt*> cache_;
};

}  // namespace nightshift
