// InputScan: the pass over an input before its job is stored. It cuts the input into rows, parses
// each, finds repeated ids, and gives the rows again in batches for the store.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/input/duplicate_finder.h"
#include "server/input/line_splitter.h"
#include "server/input/parse_limits.h"
#include "server/input/request_parser.h"
#include "server/input/rpc_error.h"
#include "server/rpc/scratch_file.h"
#include "server/store/job_store.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

struct InputScanOptions {
  int fd = -1;  // the caller's, open until the scan is destroyed
  v1::InputFormat format = v1::INPUT_FORMAT_JSONL;
  ParseLimits limits;
  int64_t max_rows = 10'000'000;
  std::string model;                        // rows that name another are errors
  std::string scratch_directory;            // 64 bytes a row, and the errors
  const std::atomic<bool>* stop = nullptr;  // ends the scan with UNAVAILABLE when it becomes true
};

// One thread. Memory: one row, one batch and DuplicateFinder's, whatever the number of rows.
class InputScan {
 public:
  // Errors: INVALID_ARGUMENT (INPUT_MALFORMED) when the input has no rows, is no UTF-8 text, breaks
  // its framing or has more than max_rows; RESOURCE_EXHAUSTED (disk); UNAVAILABLE; INTERNAL.
  static absl::StatusOr<std::unique_ptr<InputScan>> Run(InputScanOptions options);

  int64_t num_rows() const { return num_rows_; }
  int64_t num_invalid() const { return num_invalid_; }
  int64_t num_ignored_fields() const { return num_ignored_fields_; }
  // INVALID_ARGUMENT telling the first invalid rows and how many there are (INPUT_MALFORMED, or
  // PROMPT_TOO_LONG when that is all that is wrong); OK for none.
  absl::Status Rejection() const;

  // Calls `take` with all rows in order, rows_per_batch at a time (fewer when they carry large
  // errors); stops at its first error.
  absl::Status ForEachBatch(int64_t rows_per_batch,
                            const std::function<absl::Status(const std::vector<NewRow>&)>& take);

 private:
  struct Record;

  explicit InputScan(InputScanOptions options) : options_(std::move(options)) {}
  absl::Status ScanRows();
  template <typename Splitter>
  absl::Status ScanWith(Splitter splitter);
  absl::Status AddRow(const SplitRow& row);
  absl::Status FindDuplicates();
  absl::StatusOr<Record> ReadRecord(int64_t index);
  absl::StatusOr<NewRow> MakeRow(int64_t index, const Record& record);
  absl::StatusOr<ParsedRow> ParseAgain(const Record& record) const;
  absl::StatusOr<std::string> DuplicateError(int64_t index, const Record& record);
  bool HasRoomForInvalid() const;  // one more to be told of
  void CountInvalid(int64_t index, int64_t line, const absl::Status& status);

  const InputScanOptions options_;
  std::unique_ptr<ScratchFile> records_;
  std::unique_ptr<ScratchFile> errors_;
  std::unique_ptr<DuplicateFinder> ids_;
  int64_t num_rows_ = 0;
  int64_t num_invalid_ = 0;
  int64_t num_ignored_fields_ = 0;
  v1::RequestForm last_form_ = v1::REQUEST_FORM_PLAIN;
  std::vector<FieldViolation> first_invalid_;
  bool all_too_long_ = true;  // the invalid ones
};

}  // namespace nightshift
