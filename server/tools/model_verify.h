// `nightshift model verify PACK`: reads everything and checks every checksum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nightshift {

struct VerifyReport {
  int64_t shards = 0;  // read
  int64_t bytes = 0;
  std::vector<std::string> problems;  // what differs, where; the first kMaxVerifyProblems
  int64_t num_problems = 0;

  bool ok() const { return num_problems == 0; }
};

inline constexpr size_t kMaxVerifyProblems = 100;

// The report on the pack at `path`, as one line of JSON.
std::string VerifyJson(const std::string& path, const VerifyReport& report);

// Reads on after a problem, so that the report shows how much is broken. Memory: one shard.
// Errors: those of Pack::Open, when the manifest itself is broken.
absl::StatusOr<VerifyReport> VerifyModel(const std::string& path);

}  // namespace nightshift
