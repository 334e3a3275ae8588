// Fetching: a job's results into a file or to standard output, with progress for whoever watches.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "client/output_file.h"
#include "client/session.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

struct FetchOptions {
  v1::Job job;
  bool follow = false;
  bool token_ids = false;
  v1::ResultOrder order = v1::RESULT_ORDER_COMMIT;
};

struct FetchOutcome {
  ResultStreamEnd end;
  // The first failed result that came by: "line 7: context_length_exceeded: ..."; empty for none.
  std::string first_failure;
};

// Appends a line for each result after last_seq to `file`, or prints it for nullptr, and advances
// last_seq (a position of the order), also when it ends with an error; `file` is left at a checkpoint.
// Errors: as Client::StreamResults, and the file's.
absl::StatusOr<FetchOutcome> FetchResults(Session& session, const FetchOptions& options,
                                          OutputFile* file, int64_t& last_seq);

// How results become lines, as OutputState::line_options has it.
std::string LineOptionsText(bool token_ids, v1::ResultOrder order);

// OK when no result is missing from a job that has ended; INTERNAL with the numbers otherwise.
absl::Status CheckComplete(const std::string& job, const ResultStreamEnd& end);

// Says how the job ended and returns the exit code for it. `output` is where the results are, empty
// for nowhere; `first_failure` as in FetchOutcome.
ExitCode ReportOutcome(Session& session, const v1::Job& job, const std::string& output,
                       const std::string& first_failure);

}  // namespace nightshift
