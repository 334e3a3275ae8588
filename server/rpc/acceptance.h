// Acceptance: from a checked input to a durable job. Accepted means durable: when Accept returns OK
// the input file, the job and all its rows survive a crash.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/rpc/input_scan.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/upload.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// What a client asked for, beside the input.
struct Submission {
  std::string tenant;      // whose job it becomes
  std::string job_id;      // may be empty
  std::string request_id;  // may be empty
  v1::JobSpec spec;        // as sent
  v1::InputFormat format = v1::INPUT_FORMAT_JSONL;
  bool validate_only = false;
  std::string retry_of = {};  // id of the job whose rows these are; empty for none
  std::string after_uid = {};  // of a retry: of the job that the old one waited for
};

// Thread-safe. Accept blocks (disk, store): for task threads.
class Acceptance {
 public:
  explicit Acceptance(RpcContext& context) : context_(context) {}

  // A call begins that brings this submission: counts it, and refuses what Accept would, as far as
  // that can be told without the input. Reads the store. Errors: UNAVAILABLE (draining),
  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED (DISK_RESERVE, QUOTA_EXCEEDED).
  absl::Status Begin(const Submission& submission) const;

  // NOT_FOUND (MODEL_NOT_FOUND) or FAILED_PRECONDITION (MODEL_UNAVAILABLE). May read the disk.
  absl::Status CheckModel(const std::string& name) const;

  // Stores the job whose input is `upload` (finished), and moves its file. A submission with the
  // request_id and body of a stored one gives that job. With validate_only nothing is stored: the
  // answer has the resolved spec and the counts that the job would start with. Errors:
  // ALREADY_EXISTS (JOB_EXISTS, REQUEST_ID_REUSED), ABORTED (REQUEST_IN_PROGRESS), NOT_FOUND or
  // FAILED_PRECONDITION (model), NOT_FOUND (after_job), INVALID_ARGUMENT (input),
  // RESOURCE_EXHAUSTED (disk, quota), UNAVAILABLE (draining).
  absl::StatusOr<v1::Job> Accept(const Submission& submission, Upload& upload);

 private:
  class InFlight;
  absl::Status Check(const Submission& submission) const;
  // The job stored under the same request_id: empty for none.
  absl::StatusOr<std::optional<v1::Job>> FindEarlier(const Submission& submission,
                                                     const std::string& fingerprint);
  absl::Status CheckJobIdIsFree(const Submission& submission);
  // The uid of the job that this one runs after; empty for none.
  absl::StatusOr<std::string> FindPredecessor(const Submission& submission);
  absl::Status Insert(const JobRecord& record, InputScan& scan);
  absl::Status InsertRows(const JobRecord& record, InputScan& scan);
  absl::StatusOr<v1::Job> View(const std::string& job_key);

  RpcContext& context_;
  Mutex mutex_;
  // Tenants with request ids.
  std::set<std::pair<std::string, std::string>> in_flight_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
