#include "server/store/sqlite_statement.h"

#include <cerrno>

#include <sqlite3.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/store/checked_pages.h"

namespace nightshift {
namespace {

// Nobody else writes our database; this is patience with an operator who reads it with a tool.
constexpr int kBusyTimeoutMs = 5000;

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : connection_(other.connection_),
      sql_(std::move(other.sql_)),
      statement_(std::exchange(other.statement_, nullptr)),
      next_parameter_(other.next_parameter_) {}

SqliteStatement::~SqliteStatement() {
  if (statement_ == nullptr) {
    return;
  }
  Reset();
  // A second loan of the same text was compiled anew: one of the two is kept.
  const auto [kept, inserted] = connection_->cache_.emplace(sql_, statement_);
  if (!inserted) {
    sqlite3_finalize(statement_);
  }
}

SqliteStatement& SqliteStatement::Bind(int64_t value) {
  CHECK_EQ(sqlite3_bind_int64(statement_, next_parameter_++, value), SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(absl::string_view text) {
  CHECK_EQ(
      sqlite3_bind_text64(statement_, next_parameter_++, text.data() == nullptr ? "" : text.data(),
                          text.size(), SQLITE_TRANSIENT, SQLITE_UTF8),
      SQLITE_OK);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(absl::string_view bytes) {
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  CHECK_EQ(sqlite3_bind_blob64(statement_, next_parameter_++, data, bytes.size(), SQLITE_TRANSIENT),
           SQLITE_OK);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code == SQLITE_DONE) {
    return false;
  }
  return connection_->StatusOf(code, sql_);
}

absl::Status SqliteStatement::Run() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_row, Step());
    if (!has_row) {
      Reset();
      return absl::OkStatus();
    }
  }
}

void SqliteStatement::Reset() {
  // The code repeats the last Step's, which was reported there.
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  next_parameter_ = 1;
}

int64_t SqliteStatement::Int64(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string()
                         : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

absl::StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::Open(const std::string& path,
                                                                         bool read_only) {
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection(path));
  const int flags = (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) |
                    SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &connection->database_, flags, CheckedPagesVfs());
  if (code != SQLITE_OK) {
    return connection->StatusOf(code, "open");
  }
  sqlite3_busy_timeout(connection->database_, kBusyTimeoutMs);
  return connection;
}

SqliteConnection::~SqliteConnection() {
  for (const auto& [sql, statement] : cache_) {
    sqlite3_finalize(statement);
  }
  CHECK_EQ(sqlite3_close(database_), SQLITE_OK);
}

absl::StatusOr<SqliteStatement> SqliteConnection::Prepare(const std::string& sql) {
  if (const auto cached = cache_.find(sql); cached != cache_.end()) {
    SqliteStatement statement(this, sql, cached->second);
    cache_.erase(cached);
    return statement;
  }
  sqlite3_stmt* compiled = nullptr;
  const int code = sqlite3_prepare_v3(database_, sql.c_str(), static_cast<int>(sql.size() + 1),
                                      SQLITE_PREPARE_PERSISTENT, &compiled, nullptr);
  if (code != SQLITE_OK) {
    return StatusOf(code, sql);
  }
  return SqliteStatement(this, sql, compiled);
}

absl::Status SqliteConnection::Execute(const std::string& script) {
  const int code = sqlite3_exec(database_, script.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : StatusOf(code, script);
}

absl::StatusOr<std::string> SqliteConnection::Query(const std::string& sql) {
  ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool has_row, statement.Step());
  return has_row ? statement.Bytes(0) : std::string();
}

int64_t SqliteConnection::num_changed() const {
  return sqlite3_changes64(database_);
}

bool SqliteConnection::in_transaction() const {
  return sqlite3_get_autocommit(database_) == 0;
}

absl::Status SqliteConnection::StatusOf(int code, absl::string_view tried) {
  const int error_number = database_ == nullptr ? 0 : sqlite3_system_errno(database_);
  const std::string message =
      absl::StrCat("sqlite ", path_, ": ", tried, ": ",
                   database_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database_),
                   " (code ", code, ", errno ", error_number, ")");
  switch (code & 0xFF) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(message);
    case SQLITE_IOERR:
      if (code == SQLITE_IOERR_DATA) {
        io_error_ = absl::DataLossError(absl::StrCat(message, ": a page fails its checksum"));
        return io_error_;
      }
      // A sync that failed has dropped what it did not write, whatever the reason.
      if ((error_number == ENOSPC || error_number == EDQUOT) && code != SQLITE_IOERR_FSYNC &&
          code != SQLITE_IOERR_DIR_FSYNC) {
        return absl::ResourceExhaustedError(message);
      }
      io_error_ = absl::InternalError(message);
      return io_error_;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      io_error_ = absl::DataLossError(message);
      return io_error_;
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(message);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace nightshift
