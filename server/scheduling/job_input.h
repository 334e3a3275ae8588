// JobInput: the input file of a job, read row by row.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"

namespace nightshift {

// Opens the file at the first read, closes it when destroyed. Thread-safe.
class JobInput {
 public:
  explicit JobInput(std::string path) : path_(std::move(path)) {}
  ~JobInput();
  JobInput(const JobInput&) = delete;
  JobInput& operator=(const JobInput&) = delete;

  // `crc`: of the bytes as they were accepted, or kNoCrc. Errors: DATA_LOSS when the file is gone,
  // ends before the row does, or holds other bytes; UNAVAILABLE when it cannot be opened or read at
  // present (an I/O error, too many open files), naming file, error and place.
  absl::StatusOr<std::string> ReadRow(int64_t offset, int64_t length, int64_t crc);
  // Whether the file was opened: what fails then is the row.
  bool is_open();

 private:
  absl::StatusOr<int> OpenOnce();

  const std::string path_;
  Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace nightshift
