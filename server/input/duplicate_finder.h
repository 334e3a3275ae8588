// DuplicateFinder: which rows repeat the custom_id of an earlier row, in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// Keeps 16 bytes a row in an unnamed scratch file: a 128-bit hash of the id, salted, so that nobody
// can aim at one part. Find reads that file once for each 262,144 rows (10 million rows: 160 MB on
// disk, 39 reads) and holds the hashes of one part of the hash space at a time.
// Memory: about 13 MiB, whatever the number of rows. One thread.
class DuplicateFinder {
 public:
  // The scratch file is made in `directory` and vanishes with this object.
  // Errors: RESOURCE_EXHAUSTED when the disk is full, INTERNAL.
  static absl::StatusOr<std::unique_ptr<DuplicateFinder>> Create(const std::string& directory);
  ~DuplicateFinder();
  DuplicateFinder(const DuplicateFinder&) = delete;
  DuplicateFinder& operator=(const DuplicateFinder&) = delete;

  // Adds the next row; an empty id is never a duplicate.
  absl::Status Add(absl::string_view custom_id);
  // Calls `found(row, first_row)` for each row whose id an earlier row had; the order is by parts
  // of the hash space, not by row. Stops at the first error of `found`.
  absl::Status Find(const std::function<absl::Status(int64_t row, int64_t first_row)>& found);

 private:
  using Hash = std::array<uint64_t, 2>;
  struct Entry {
    Hash hash;
    int64_t row;
  };
  using Found = std::function<absl::Status(int64_t, int64_t)>;
  DuplicateFinder(int fd, std::string salt) : fd_(fd), salt_(std::move(salt)) {}
  absl::Status Flush();
  // Reports and removes the entries that repeat another's hash.
  static absl::Status Fold(std::vector<Entry>& entries, const Found& found);
  absl::Status FindInPart(uint64_t part, uint64_t num_parts, const Found& found);

  const int fd_;
  const std::string salt_;
  std::vector<Hash> pending_;  // not written yet
  int64_t num_written_ = 0;
};

}  // namespace nightshift
