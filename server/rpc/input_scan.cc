#include "server/rpc/input_scan.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"
#include "server/input/file_window.h"
#include "server/input/result_builder.h"
#include "server/input/row_error.h"
#include "server/rpc/status_bridge.h"

namespace nightshift {
namespace {

constexpr int64_t kNone = -1;
// Errors of one batch; a batch ends early at it.
constexpr int64_t kMaxBatchErrorBytes = 4 << 20;

std::string RowName(int64_t index, int64_t line) {
  return line > 0 ? absl::StrCat("line ", line) : absl::StrCat("row ", index);
}

}  // namespace

// What is kept of a row between the two passes, in its position in the scratch file.
struct InputScan::Record {
  int64_t offset = 0;
  int64_t length = 0;
  int64_t line = 0;
  int64_t crc = kNoCrc;
  int64_t first_row = kNone;  // of a repeated id: the row that had it first
  int64_t error_offset = kNone;
  int64_t error_length = 0;
};

absl::StatusOr<std::unique_ptr<InputScan>> InputScan::Run(InputScanOptions options) {
  std::unique_ptr<InputScan> scan(new InputScan(std::move(options)));
  RETURN_IF_ERROR(scan->ScanRows());
  return scan;
}

absl::Status InputScan::ScanRows() {
  ASSIGN_OR_RETURN(records_, ScratchFile::Create(options_.scratch_directory));
  ASSIGN_OR_RETURN(errors_, ScratchFile::Create(options_.scratch_directory));
  ASSIGN_OR_RETURN(ids_, DuplicateFinder::Create(options_.scratch_directory));
  RETURN_IF_ERROR(options_.format == v1::INPUT_FORMAT_JSONL
                      ? ScanWith(LineSplitter(options_.fd, options_.limits.max_line_bytes))
                      : ScanWith(MessageSplitter(options_.fd, options_.limits.max_line_bytes)));
  if (num_rows_ == 0) {
    return RowError(reason::kInputMalformed, "empty_file", "", "input has no rows");
  }
  RETURN_IF_ERROR(records_->Flush());
  RETURN_IF_ERROR(errors_->Flush());
  return FindDuplicates();
}

template <typename Splitter>
absl::Status InputScan::ScanWith(Splitter splitter) {
  SplitRow row;
  while (true) {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
      return Draining();
    }
    ASSIGN_OR_RETURN(const bool more, splitter.Next(row));
    if (!more) {
      return absl::OkStatus();
    }
    if (num_rows_ == options_.max_rows) {
      return RowError(reason::kInputMalformed, "too_many_tasks", "",
                      absl::StrCat("input has more than ", options_.max_rows, " rows"));
    }
    RETURN_IF_ERROR(AddRow(row));
  }
}

absl::Status InputScan::AddRow(const SplitRow& row) {
  ParsedRow parsed;
  if (row.too_long) {
    parsed.status =
        RowError(reason::kInputMalformed, row_code::kInvalidJsonLine, "",
                 absl::StrCat("line of ", row.place.length, " bytes is longer than the limit of ",
                              options_.limits.max_line_bytes));
  } else {
    parsed = ParseRow(options_.format, row.bytes, options_.limits);
  }
  if (parsed.status.ok() && !parsed.model.empty() && parsed.model != options_.model) {
    constexpr int64_t kMaxQuotedBytes = 128;
    parsed.status = RowError(reason::kFieldInvalid, row_code::kModelMismatch, "model",
                             absl::StrCat("is ", CleanText(parsed.model, kMaxQuotedBytes),
                                          ", the job's model is ", options_.model));
  }
  if (parsed.request.form() != v1::REQUEST_FORM_UNSPECIFIED) {
    last_form_ = parsed.request.form();
  }
  num_ignored_fields_ += parsed.ignored_fields;
  Record record = {.offset = row.place.offset, .length = row.place.length, .line = row.place.line};
  if (!row.too_long) {
    record.crc = Crc32c(std::as_bytes(std::span(row.bytes.data(), row.bytes.size())));
  }
  if (!parsed.status.ok()) {
    // A line that nobody can read is answered in the form of its neighbours.
    const bool is_jsonl = options_.format == v1::INPUT_FORMAT_JSONL;
    const std::string body =
        BuildErrorResult({.index = num_rows_,
                          .line = row.place.line,
                          .custom_id = parsed.request.custom_id(),
                          .form = is_jsonl ? last_form_ : parsed.request.form(),
                          .metadata = parsed.request.metadata()},
                         parsed.status);
    ASSIGN_OR_RETURN(record.error_offset, errors_->Append(body));
    record.error_length = static_cast<int64_t>(body.size());
    CountInvalid(num_rows_, row.place.line, parsed.status);
  }
  RETURN_IF_ERROR(ids_->Add(parsed.request.custom_id()));
  std::string bytes(sizeof(Record), '\0');
  std::memcpy(bytes.data(), &record, sizeof(record));
  RETURN_IF_ERROR(records_->Append(bytes).status());
  ++num_rows_;
  return absl::OkStatus();
}

absl::Status InputScan::FindDuplicates() {
  return ids_->Find([this](int64_t row, int64_t first_row) -> absl::Status {
    ASSIGN_OR_RETURN(Record record, ReadRecord(row));
    if (record.error_offset != kNone) {
      return absl::OkStatus();  // it has an error already
    }
    ASSIGN_OR_RETURN(const Record first, ReadRecord(first_row));
    const char* field = "";
    if (HasRoomForInvalid()) {
      ASSIGN_OR_RETURN(const ParsedRow parsed, ParseAgain(record));
      field = parsed.id_field;
    }
    CountInvalid(row, record.line,
                 absl::InvalidArgumentError(
                     absl::StrCat(field, " was used before in ", RowName(first_row, first.line))));
    record.first_row = first_row;
    std::string bytes(sizeof(Record), '\0');
    std::memcpy(bytes.data(), &record, sizeof(record));
    return WriteAt(records_->fd(), row * static_cast<int64_t>(sizeof(Record)), bytes,
                   "scratch file");
  });
}

bool InputScan::HasRoomForInvalid() const {
  return static_cast<int64_t>(first_invalid_.size()) < kMaxFieldViolations - 1;
}

void InputScan::CountInvalid(int64_t index, int64_t line, const absl::Status& status) {
  ++num_invalid_;
  all_too_long_ = all_too_long_ && ErrorReason(status) == reason::kPromptTooLong;
  if (HasRoomForInvalid()) {
    first_invalid_.push_back({RowName(index, line), std::string(status.message())});
  }
}

absl::Status InputScan::Rejection() const {
  if (num_invalid_ == 0) {
    return absl::OkStatus();
  }
  std::vector<FieldViolation> violations = first_invalid_;
  const int64_t untold = num_invalid_ - static_cast<int64_t>(violations.size());
  if (untold > 0) {
    violations.push_back({"input", absl::StrCat("has ", untold, " more invalid rows")});
  }
  return MakeFieldError(all_too_long_ ? reason::kPromptTooLong : reason::kInputMalformed,
                        violations, num_invalid_);
}

absl::StatusOr<InputScan::Record> InputScan::ReadRecord(int64_t index) {
  constexpr auto kRecordBytes = static_cast<int64_t>(sizeof(Record));
  Record record;
  RETURN_IF_ERROR(ReadInto(records_->fd(), index * kRecordBytes,
                           std::as_writable_bytes(std::span(&record, 1)), "scratch file"));
  return record;
}

absl::StatusOr<NewRow> InputScan::MakeRow(int64_t index, const Record& record) {
  NewRow row = {.index = index,
                .offset = record.offset,
                .length = record.length,
                .line = record.line,
                .crc = record.crc,
                .error_body = std::nullopt};
  if (record.error_offset != kNone) {
    ASSIGN_OR_RETURN(row.error_body, ReadAt(errors_->fd(), record.error_offset, record.error_length,
                                            "scratch file"));
  } else if (record.first_row != kNone) {
    ASSIGN_OR_RETURN(row.error_body, DuplicateError(index, record));
  }
  return row;
}

absl::StatusOr<ParsedRow> InputScan::ParseAgain(const Record& record) const {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadAt(options_.fd, record.offset, record.length, "input"));
  return ParseRow(options_.format, bytes, options_.limits);
}

absl::StatusOr<std::string> InputScan::DuplicateError(int64_t index, const Record& record) {
  ASSIGN_OR_RETURN(const ParsedRow parsed, ParseAgain(record));
  ASSIGN_OR_RETURN(const Record first, ReadRecord(record.first_row));
  const std::string here = RowName(index, record.line);
  const std::string before = RowName(record.first_row, first.line);
  const absl::Status error = MakeError(
      absl::StatusCode::kInvalidArgument, reason::kInputMalformed,
      absl::StrCat(parsed.id_field, " of ", here, " was used before in ", before),
      {{"code", row_code::kDuplicateCustomId}, {"param", parsed.id_field}, {"first", before}});
  return BuildErrorResult({.index = index,
                           .line = record.line,
                           .custom_id = parsed.request.custom_id(),
                           .form = parsed.request.form(),
                           .metadata = parsed.request.metadata()},
                          error);
}

absl::Status InputScan::ForEachBatch(
    int64_t rows_per_batch, const std::function<absl::Status(const std::vector<NewRow>&)>& take) {
  FileWindow window(records_->fd());
  std::vector<NewRow> batch;
  int64_t error_bytes = 0;
  for (int64_t index = 0; index < num_rows_; ++index) {
    constexpr auto kRecordBytes = static_cast<int64_t>(sizeof(Record));
    ASSIGN_OR_RETURN(const absl::string_view bytes, window.Peek(kRecordBytes));
    if (static_cast<int64_t>(bytes.size()) < kRecordBytes) {
      return absl::InternalError(absl::StrCat("scratch file ends before row ", index));
    }
    Record record;
    std::memcpy(&record, bytes.data(), sizeof(record));
    window.Skip(kRecordBytes);
    ASSIGN_OR_RETURN(NewRow row, MakeRow(index, record));
    error_bytes += row.error_body ? static_cast<int64_t>(row.error_body->size()) : 0;
    batch.push_back(std::move(row));
    if (static_cast<int64_t>(batch.size()) == rows_per_batch || error_bytes > kMaxBatchErrorBytes) {
      RETURN_IF_ERROR(take(batch));
      batch.clear();
      error_bytes = 0;
    }
  }
  return batch.empty() ? absl::OkStatus() : take(batch);
}

}  // namespace nightshift
