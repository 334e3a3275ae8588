// ResultSpool: results of a job that wait for those of another one, on disk.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/file_descriptor.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Written, then read in the same order. One thread.
class ResultSpool {
 public:
  // Errors: as OpenUnnamedFile.
  static absl::StatusOr<ResultSpool> Create();

  // Errors: RESOURCE_EXHAUSTED (disk full).
  absl::Status Append(const v1::Result& result);
  // The next one. Errors: OUT_OF_RANGE behind the last, DATA_LOSS.
  absl::StatusOr<v1::Result> Next();
  // The next one is the first again.
  void Rewind() { next_ = 0; }

 private:
  explicit ResultSpool(FileDescriptor file) : file_(std::move(file)) {}
  absl::Status ReadAt(int64_t offset, char* bytes, size_t count) const;

  FileDescriptor file_;
  int64_t end_ = 0;
  int64_t next_ = 0;
};

}  // namespace nightshift
