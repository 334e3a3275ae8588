// MergeLevels: results of the jobs of a merged run, one job a level, on disk.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/documents/document.h"
#include "client/result_spool.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// The results of a level are in the order of its rows, which is that of the documents: parts of one
// lie behind each other. One thread. Memory: the outputs of one document.
class MergeLevels {
 public:
  // Errors: as OpenUnnamedFile.
  absl::Status Begin();
  // Of the level that was begun last.
  absl::Status Append(const v1::Result& result);

  // Gives what is to be merged of the last level: each document that came in parts, with their
  // outputs as its field "output", or with an error when one of them failed. Errors: of `take`.
  absl::Status ForEachSplit(const std::function<absl::Status(const Document&)>& take);
  // Gives the final result of each document in order, index counted anew. Errors: of `take`;
  // INTERNAL when a level lacks a result.
  absl::Status ForEachFinal(const std::function<absl::Status(const v1::Result&)>& take);

 private:
  absl::StatusOr<v1::Result> NextFinal(size_t level);

  std::vector<ResultSpool> spools_;
};

}  // namespace nightshift
